FROM golang:1.24 AS build
RUN CGO_ENABLED=0 GOBIN=/out go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0

FROM scratch
COPY --from=build /out/server /toxiproxy
EXPOSE 8474
ENTRYPOINT ["/toxiproxy", "-host=0.0.0.0", "-config=/etc/toxiproxy.json"]

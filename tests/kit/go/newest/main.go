// Command newest produces, consumes and lists brokers with franz-go or Sarama of today.
//
//	newest <<< '{"client": "franz-go", "verb": "produce", "bootstrap": "host:port", "ca": "/ca.pem", "topic": "t",
//	             "acks": -1, "codec": "none", "records": [{"key": "a2V5", "value": null}, …]}'
//
// Keys and values are in base64. `ca` is the file of whoever signed the brokers' certificates, empty: no TLS; `keystore`
// one with a certificate and a key of our own. With a `mechanism` (PLAIN; of franz-go, SCRAM-SHA-256 and -512 too) it logs
// in as `user` with `password`. What it prints, in lines of JSON:
//
//	produce   {"seq": 0, "partition": 1, "offset": 2} or {"seq": 0, "error": "…"} for each record
//	consume   {"topic": "t", "partition": 1, "offset": 2, "timestamp": 3, "key": "…", "value": "…", "headers": […]}
//	brokers   {"addresses": ["host:port", …]}
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
)

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type record struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type order struct {
	Client     string   `json:"client"`
	Verb       string   `json:"verb"`
	Bootstrap  string   `json:"bootstrap"`
	CA         string   `json:"ca"`
	Keystore   string   `json:"keystore"`
	Mechanism  string   `json:"mechanism"`
	User       string   `json:"user"`
	Password   string   `json:"password"`
	Topic      string   `json:"topic"`
	Acks       int16    `json:"acks"`
	Codec      string   `json:"codec"`
	LingerMs   int      `json:"linger_ms"`
	Idempotent bool     `json:"idempotent"`
	Records    []record `json:"records"`
	Group      string   `json:"group"`
	Count      int      `json:"count"`
}

// What both clients can do. All that is told goes to `tell`, from any goroutine.
type client interface {
	produce(order) error
	consume(order) error
	brokers(order) error
}

var printing sync.Mutex

func tell(line any) {
	printing.Lock()
	defer printing.Unlock()
	json.NewEncoder(os.Stdout).Encode(line)
}

func tellProduced(seq int, partition int32, offset int64, err error) {
	if err != nil {
		tell(map[string]any{"seq": seq, "error": err.Error()})
		return
	}
	tell(map[string]any{"seq": seq, "partition": partition, "offset": offset})
}

func tellBrokers(addresses []string) {
	tell(map[string]any{"addresses": addresses})
}

func (o order) tls() (*tls.Config, error) {
	if o.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + o.CA)
	}
	if o.Keystore != "" {
		own, err := tls.LoadX509KeyPair(o.Keystore, o.Keystore)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func main() {
	var wanted order
	err := json.NewDecoder(os.Stdin).Decode(&wanted)
	clients := map[string]client{"franz-go": franz{}, "sarama": saramas{}}
	if err == nil {
		used := clients[wanted.Client]
		verbs := map[string]func(order) error{"produce": used.produce, "consume": used.consume, "brokers": used.brokers}
		err = verbs[wanted.Verb](wanted)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

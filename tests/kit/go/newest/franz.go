package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type franz struct{}

var franzAcks = map[int16]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (franz) connect(o order, more ...kgo.Opt) (*kgo.Client, error) {
	options := append(more, kgo.SeedBrokers(o.Bootstrap), kgo.ClientID("franz-go"))
	config, err := o.tls()
	if err != nil {
		return nil, err
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	if o.Mechanism != "" {
		options = append(options, kgo.SASL(o.login()))
	}
	return kgo.NewClient(options...)
}

func (o order) login() sasl.Mechanism {
	told := scram.Auth{User: o.User, Pass: o.Password}
	switch o.Mechanism {
	case "SCRAM-SHA-256":
		return told.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return told.AsSha512Mechanism()
	}
	return plain.Auth{User: o.User, Pass: o.Password}.AsMechanism()
}

func (f franz) produce(o order) error {
	options := []kgo.Opt{
		kgo.RequiredAcks(franzAcks[o.Acks]),
		kgo.ProducerBatchCompression(franzCodecs[o.Codec]),
		kgo.ProducerLinger(time.Duration(o.LingerMs) * time.Millisecond),
		// Its default, but with 2 KiB to a partition, so that a few records are in several (SPREADING in clients.py).
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(2<<10, true, true, nil)),
	}
	if !o.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	connected, err := f.connect(o, options...)
	if err != nil {
		return err
	}
	defer connected.Close()
	for seq, each := range o.Records {
		sent := &kgo.Record{Topic: o.Topic, Key: each.Key, Value: each.Value}
		for _, header := range each.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		connected.Produce(context.Background(), sent, func(done *kgo.Record, err error) {
			tellProduced(seq, done.Partition, done.Offset, err)
		})
	}
	return connected.Flush(context.Background())
}

func (f franz) consume(o order) error {
	connected, err := f.connect(
		o, kgo.ConsumeTopics(o.Topic), kgo.ConsumerGroup(o.Group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer connected.Close()
	for found := 0; found < o.Count; {
		fetches := connected.PollFetches(context.Background())
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("%v", errs)
		}
		fetches.EachRecord(func(each *kgo.Record) {
			found++
			read := record{
				Topic: each.Topic, Partition: each.Partition, Offset: each.Offset,
				Timestamp: each.Timestamp.UnixMilli(), Key: each.Key, Value: each.Value, Headers: []header{},
			}
			for _, it := range each.Headers {
				read.Headers = append(read.Headers, header{it.Key, it.Value})
			}
			tell(read)
		})
	}
	return connected.CommitUncommittedOffsets(context.Background())
}

func (f franz) brokers(o order) error {
	connected, err := f.connect(o)
	if err != nil {
		return err
	}
	defer connected.Close()
	asked := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(o.Topic)
	asked.Topics = append(asked.Topics, topic)
	answer, err := asked.RequestWith(context.Background(), connected)
	if err != nil {
		return err
	}
	var addresses []string
	for _, broker := range answer.Brokers {
		addresses = append(addresses, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
	}
	tellBrokers(addresses)
	return nil
}

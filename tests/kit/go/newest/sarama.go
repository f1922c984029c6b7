package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramas struct{}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func (saramas) connect(o order) (sarama.Client, error) {
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Version = sarama.MaxVersion
	config.Producer.RequiredAcks = sarama.RequiredAcks(o.Acks)
	config.Producer.Compression = saramaCodecs[o.Codec]
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = time.Duration(o.LingerMs) * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if o.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	secured, err := o.tls()
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = secured != nil, secured
	if o.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(o.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = o.User, o.Password
	}
	return sarama.NewClient([]string{o.Bootstrap}, config)
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func (s saramas) produce(o order) error {
	connected, err := s.connect(o)
	if err != nil {
		return err
	}
	defer connected.Close()
	producer, err := sarama.NewAsyncProducerFromClient(connected)
	if err != nil {
		return err
	}
	go func() {
		for seq, each := range o.Records {
			sent := &sarama.ProducerMessage{
				Topic: o.Topic, Key: encoder(each.Key), Value: encoder(each.Value), Metadata: seq,
			}
			for _, it := range each.Headers {
				sent.Headers = append(sent.Headers, sarama.RecordHeader{Key: []byte(it.Key), Value: it.Value})
			}
			producer.Input() <- sent
		}
	}()
	for range o.Records {
		select {
		case done := <-producer.Successes():
			tellProduced(done.Metadata.(int), done.Partition, done.Offset, nil)
		case failed := <-producer.Errors():
			tellProduced(failed.Msg.Metadata.(int), -1, -1, failed.Err)
		}
	}
	return producer.Close()
}

// One member's part of the group, until `left` records are told.
type reader struct {
	sync.Mutex
	left int
	done context.CancelFunc
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for each := range claim.Messages() {
		read := record{
			Topic: each.Topic, Partition: each.Partition, Offset: each.Offset,
			Timestamp: each.Timestamp.UnixMilli(), Key: each.Key, Value: each.Value, Headers: []header{},
		}
		for _, it := range each.Headers {
			read.Headers = append(read.Headers, header{string(it.Key), it.Value})
		}
		tell(read)
		session.MarkMessage(each, "")
		r.Lock()
		r.left--
		if r.left == 0 {
			session.Commit()
			r.done()
		}
		r.Unlock()
	}
	return nil
}

func (s saramas) consume(o order) error {
	connected, err := s.connect(o)
	if err != nil {
		return err
	}
	defer connected.Close()
	group, err := sarama.NewConsumerGroupFromClient(o.Group, connected)
	if err != nil {
		return err
	}
	defer group.Close()
	until, done := context.WithCancel(context.Background())
	defer done()
	told := &reader{left: o.Count, done: done}
	for until.Err() == nil {
		err := group.Consume(until, []string{o.Topic}, told)
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

func (s saramas) brokers(o order) error {
	connected, err := s.connect(o)
	if err != nil {
		return err
	}
	defer connected.Close()
	var addresses []string
	for _, broker := range connected.Brokers() {
		addresses = append(addresses, broker.Addr())
	}
	tellBrokers(addresses)
	return nil
}

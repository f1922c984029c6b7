// Command ancient produces with Sarama of 2018, which speaks Produce v0 to v2 as its Version says.
//
//	ancient '{"bootstrap": "host:port", "version": "0.8.2.0", "topic": "t", "acks": 1, "codec": 0, "linger_ms": 5,
//	          "records": [{"key": "a2V5", "value": null}, …]}'   (from stdin; keys and values in base64)
//
// It prints a line of JSON for each record: {"seq": 0, "partition": 1, "offset": 2} or {"seq": 0, "error": "…"}.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/Shopify/sarama"
)

type record struct {
	Key   *[]byte `json:"key"`
	Value *[]byte `json:"value"`
}

type order struct {
	Bootstrap string   `json:"bootstrap"`
	Version   string   `json:"version"`
	Topic     string   `json:"topic"`
	Acks      int16    `json:"acks"`
	Codec     int8     `json:"codec"`
	LingerMs  int      `json:"linger_ms"`
	Records   []record `json:"records"`
}

var versions = map[string]sarama.KafkaVersion{
	"0.8.2.2": sarama.V0_8_2_2, "0.10.2.0": sarama.V0_10_2_0,
}

func encoder(data *[]byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(*data)
}

func main() {
	var wanted order
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		fail(err)
	}
	config := sarama.NewConfig()
	config.ClientID = "sarama-" + wanted.Version
	config.Version = versions[wanted.Version]
	config.Producer.RequiredAcks = sarama.RequiredAcks(wanted.Acks)
	config.Producer.Compression = sarama.CompressionCodec(wanted.Codec)
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = time.Duration(wanted.LingerMs) * time.Millisecond
	producer, err := sarama.NewAsyncProducer([]string{wanted.Bootstrap}, config)
	if err != nil {
		fail(err)
	}
	go func() {
		for seq, each := range wanted.Records {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: wanted.Topic, Key: encoder(each.Key), Value: encoder(each.Value), Metadata: seq,
			}
		}
	}()
	out := json.NewEncoder(os.Stdout)
	for range wanted.Records {
		select {
		case done := <-producer.Successes():
			out.Encode(map[string]interface{}{
				"seq": done.Metadata, "partition": done.Partition, "offset": done.Offset,
			})
		case failed := <-producer.Errors():
			out.Encode(map[string]interface{}{"seq": failed.Msg.Metadata, "error": failed.Err.Error()})
		}
	}
	producer.Close()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Command openai asks OpenAI: a whole answer, and a stream.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/openai/openai-go/v3"
)

func main() {
	ctx := context.Background()
	client := openai.NewClient() // reads OPENAI_BASE_URL and OPENAI_API_KEY
	call := openai.ChatCompletionNewParams{
		Model: "gpt-4.1-mini", MaxTokens: openai.Int(8),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("How does a lock work?")},
	}

	answer, err := client.Chat.Completions.New(ctx, call)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("whole: ", answer.Choices[0].Message.Content)

	fmt.Print("stream: ")
	stream := client.Chat.Completions.NewStreaming(ctx, call)
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			fmt.Print(c.Delta.Content)
		}
	}
	if err := stream.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println()
}

// Command anthropic asks Anthropic: a whole answer, and a stream.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/anthropics/anthropic-sdk-go"
)

func main() {
	ctx := context.Background()
	client := anthropic.NewClient() // reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
	call := anthropic.MessageNewParams{
		Model: "claude-sonnet-4-6", MaxTokens: 8,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("How does a lock work?"))},
	}

	answer, err := client.Messages.New(ctx, call)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("whole: ", answer.Content[0].Text)

	fmt.Print("stream: ")
	stream := client.Messages.NewStreaming(ctx, call)
	for stream.Next() {
		fmt.Print(stream.Current().Delta.Text)
	}
	if err := stream.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println()
}

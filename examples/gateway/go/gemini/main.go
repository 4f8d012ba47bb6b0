// Command gemini asks Gemini: a whole answer, and a stream.
package main

import (
	"context"
	"fmt"
	"log"

	"google.golang.org/genai"
)

func main() {
	ctx := context.Background()
	client, err := genai.NewClient(ctx, nil) // reads GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY
	if err != nil {
		log.Fatal(err)
	}
	model, question := "gemini-2.5-flash-lite", genai.Text("How does a lock work?")
	config := &genai.GenerateContentConfig{MaxOutputTokens: 8}

	answer, err := client.Models.GenerateContent(ctx, model, question, config)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("whole: ", answer.Text())

	fmt.Print("stream: ")
	for chunk, err := range client.Models.GenerateContentStream(ctx, model, question, config) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(chunk.Text())
	}
	fmt.Println()
}

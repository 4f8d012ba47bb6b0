package llm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// imageOptions are what the tokens of images depend on.
type imageOptions struct {
	size, quality string
	partials      int64 // how often a stream shows an image before it is done
	pieces        bool  // the model sells images by the piece, and they have no tokens
}

// imageTable is what a provider publishes of the tokens of images that are made.
type imageTable struct {
	families []string         // of which it is; MaxOutput of these is the most of an image
	tokens   map[string]int64 // by "quality size"
}

// partialImage are the tokens of an image that is shown before it is done: see openaiimages.go.
const partialImage = 100

// perImage begin the names of models that cost by the image, at any provider.
var perImage = all(func(v *provider) []string { return v.perImage })

// makesImages reports whether the answer of a call consists of images.
func (c *Call) makesImages() bool { return c.Operation == OpImages || c.Operation == OpImageEdits }

// wordless reports whether the answer of a call has no tokens.
func (c *Call) wordless() bool {
	return c.Operation == OpEmbeddings || c.Operation == OpModerations || c.image.pieces
}

// imageTokens returns the most tokens that one image has which a call makes. Of some models that is
// not known: see guessesImages.
func (p *Profile) imageTokens(c *Call) int64 {
	if c.image.pieces {
		return 0
	}
	f := p.Family(c.Model)
	n := f.MaxOutput
	if t := p.provider.images; t != nil && slices.Contains(t.families, f.Name) && c.Unknown == 0 {
		n = cmp.Or(t.tokens[c.image.quality+" "+c.image.size], n)
	}
	return add(n, mul(c.image.partials, partialImage))
}

// guessesImages reports whether imageTokens is no bound.
func (p *Profile) guessesImages(c *Call) bool {
	t := p.provider.images
	return c.makesImages() && !c.image.pieces && (t == nil || !slices.Contains(t.families, p.Family(c.Model).Name))
}

// checkImages notes how images are sold. The error is for those that cannot be counted.
func (c *Call) checkImages() error {
	c.image.pieces = c.makesImages() && slices.ContainsFunc(perImage, func(prefix string) bool {
		return strings.HasPrefix(bareModel(c.Model), prefix)
	})
	if c.makesImages() && c.Stream && c.Answers > 1 {
		return fmt.Errorf("llm: a stream of %d images cannot be counted, as its events do not add up what they "+
			"used: ask for one image (n: 1), or for no stream", c.Answers)
	}
	return nil
}

// unpricedImage returns what a price does not cover of a call that makes images; "" if there is
// nothing.
func (p *Price) unpricedImage(c *Call) string {
	switch {
	case !c.makesImages():
	case c.image.pieces && p.Image == 0:
		return "images, which this model sells by the piece: its price needs image"
	case c.Media[Image].Count > 0 && p.ImageInput == 0 && p.Input > 0:
		return "images in the prompt, whose tokens cost more than text: the price of the model needs image_input"
	}
	return ""
}

package llm

import (
	"encoding/base64"
	"strings"
)

// media is an input that is being read.
type media struct {
	kind   MediaKind // by its place
	depth  int       // at which it began
	text   Text      // of its content
	head   string
	mime   string
	source string // how it is given, by Anthropic's name
	named  bool   // it has an id
	twice  bool   // it has its content in two ways
}

// What the first bytes of an input show.
type look uint8

const (
	lookUnknown look = iota
	lookImage
	lookAudio
	lookVideo
	lookPDF
)

// magic are the first bytes of the formats that providers accept. A video may be in the container
// of a sound, so what is in one of MPEG-4 or Matroska is a video.
var magic = []struct {
	at   int
	text string
	look look
}{
	{0, "\x89PNG\r\n\x1a\n", lookImage},
	{0, "\xff\xd8\xff", lookImage},
	{0, "GIF87a", lookImage},
	{0, "GIF89a", lookImage},
	{8, "WEBP", lookImage},
	{4, "ftyphei", lookImage},
	{4, "ftypmif1", lookImage},
	{4, "ftypavif", lookImage},
	{8, "WAVE", lookAudio},
	{0, "ID3", lookAudio},
	{0, "\xff\xfb", lookAudio},
	{0, "\xff\xf3", lookAudio},
	{0, "\xff\xf2", lookAudio},
	{0, "\xff\xf1", lookAudio},
	{0, "\xff\xf9", lookAudio},
	{0, "fLaC", lookAudio},
	{8, "AIFF", lookAudio},
	{4, "ftyp", lookVideo},
	{0, "\x1aE\xdf\xa3", lookVideo},
	{0, "OggS", lookVideo},
	{0, "%PDF-", lookPDF},
}

// lookAt returns what the beginning of base64 shows.
func lookAt(head string) look {
	const enough = 64
	head = strings.NewReplacer("-", "+", "_", "/").Replace(head[:min(len(head), enough)/4*4])
	b, err := base64.StdEncoding.DecodeString(head)
	if err != nil {
		return lookUnknown
	}
	for _, m := range magic {
		if len(b) >= m.at && strings.HasPrefix(string(b[m.at:]), m.text) {
			return m.look
		}
	}
	return lookUnknown
}

// content returns the beginning of what is at hand of an input, in base64, and its media type. ok
// is false if it is elsewhere, or given in a way that is not known.
func (m *media) content() (head, mime string, ok bool) {
	head, mime = m.head, m.mime
	if rest, isURL := strings.CutPrefix(head, "data:"); isURL {
		kind, data, found := strings.Cut(rest, ",")
		kind, isBase64 := strings.CutSuffix(kind, ";base64")
		if !found || !isBase64 {
			return "", "", false
		}
		head = data
		if mime == "" {
			mime = kind
		}
	} else if strings.Contains(head, ":") {
		return "", "", false
	}
	ok = head != "" && !m.named && !m.twice && (m.source == "" || m.source == "base64")
	return head, strings.ToLower(mime), ok
}

// web reports whether an input is given by an address.
func (m *media) web() bool {
	head := strings.ToLower(m.head)
	return !m.named && !m.twice && (strings.HasPrefix(head, "http://") || strings.HasPrefix(head, "https://"))
}

// commit counts an input that was read. Its claims, which are its place and its media type, count
// only where the content is at hand and begins as they say: everything else may be of any kind and
// size.
func (r *requestReader) commit(m *media) {
	c := r.call
	switch m.source {
	case "text": // a document that is given as text
		m.text.tap = nil
		c.Text.plus(&m.text)
		if m.named {
			r.count1(File, 0)
		}
		return
	case "content": // its blocks were counted
		if m.named {
			r.count1(File, 0)
		}
		return
	case "", "base64", "url", "file":
	default:
		r.unknown(nil)
	}
	r.tap = r.tap[:0]
	if b := r.top(); b != nil && m.source == "url" && m.web() { // its block says what it is
		b.webs++
		return
	}
	if m.kind == Image && m.web() {
		r.count1(Image, 0)
		return
	}
	head, mime, ok := m.content()
	shown := lookUnknown
	if ok {
		shown = lookAt(head)
	}
	claims := func(kind MediaKind) bool {
		return strings.HasPrefix(mime, kind.String()+"/") || mime == "" && m.kind == kind
	}
	bytes := m.text.Bytes/4*3 + 3
	c.sound = c.sound || claims(Audio) || shown == lookAudio
	switch {
	case shown == lookImage && claims(Image):
		r.count1(Image, bytes)
	case shown == lookAudio && claims(Audio):
		r.count1(Audio, bytes)
	case shown == lookPDF:
		r.count1(File, bytes)
	case shown == lookVideo:
		c.sounds++
		r.count1(Video, bytes)
	default:
		c.sounds++
		r.count1(File, 0)
	}
}

// count1 counts an input; bytes is 0 if it is not at hand, or not understood.
func (r *requestReader) count1(kind MediaKind, bytes int64) {
	in := &r.call.Media[kind]
	in.Count++
	if bytes == 0 {
		in.Named++
		return
	}
	in.Bytes = add(in.Bytes, bytes)
}

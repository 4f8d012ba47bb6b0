package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/drawgate/drawgate/api"
)

// The following methods need the admin listener of a server that runs the gateway, and keeps
// virtual keys in the store.

// VirtualKeys lists the keys, by their names.
func (c *Client) VirtualKeys(ctx context.Context) ([]api.Key, error) {
	var out api.KeysAnswer
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/v1/keys", wait: listTime, again: true}, &out)
	return out.Keys, err
}

// VirtualKey describes a key.
func (c *Client) VirtualKey(ctx context.Context, name string) (out api.Key, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: keyPath(name, ""), again: true}, &out)
	return out, err
}

// CreateKey makes a key. The answer has its secret, which nobody can see again. It is sent only
// once: if the answer is lost, look whether there is a key, and rotate or delete it.
func (c *Client) CreateKey(ctx context.Context, q api.CreateKeyRequest) (out api.KeyWithSecret, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/keys", body: q}, &out)
	return out, err
}

// ChangeKey replaces all settings of a key, if its version is still q.Version. It is sent only
// once.
func (c *Client) ChangeKey(ctx context.Context, name string, q api.ChangeKeyRequest) (out api.Key, err error) {
	_, err = c.do(ctx, call{method: http.MethodPut, path: keyPath(name, ""), body: q}, &out)
	return out, err
}

// RotateKey gives a key another secret, which the answer has. Those so far are valid before until,
// or the end that they have, if that is earlier. It is sent only once.
func (c *Client) RotateKey(ctx context.Context, name string, until time.Time) (out api.KeyWithSecret, err error) {
	q := api.RotateKeyRequest{Until: &until}
	_, err = c.do(ctx, call{method: http.MethodPost, path: keyPath(name, "/rotate"), body: q}, &out)
	return out, err
}

// DisableKey refuses all calls of a key.
func (c *Client) DisableKey(ctx context.Context, name string) (out api.Key, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: keyPath(name, "/disable"), again: true}, &out)
	return out, err
}

// EnableKey lets calls of a key pass again.
func (c *Client) EnableKey(ctx context.Context, name string) (out api.Key, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: keyPath(name, "/enable"), again: true}, &out)
	return out, err
}

// DeleteKey removes a key, and returns it as it was. It is sent only once.
func (c *Client) DeleteKey(ctx context.Context, name string) (out api.Key, err error) {
	_, err = c.do(ctx, call{method: http.MethodDelete, path: keyPath(name, "")}, &out)
	return out, err
}

// KeyEvents lists the latest changes of keys, the newest first: of one key or, if the name is "",
// of all; last of them, or api.DefaultKeyEvents if that is 0.
func (c *Client) KeyEvents(ctx context.Context, name string, last int) ([]api.KeyEvent, error) {
	v := url.Values{}
	if name != "" {
		v.Set("key", name)
	}
	if last != 0 {
		v.Set("last", strconv.Itoa(last))
	}
	var out api.KeyEventsAnswer
	_, err := c.do(ctx, call{
		method: http.MethodGet, path: "/v1/history/keys?" + v.Encode(), wait: listTime, again: true,
	}, &out)
	return out.Events, err
}

func keyPath(name, verb string) string { return "/v1/keys/" + url.PathEscape(name) + verb }

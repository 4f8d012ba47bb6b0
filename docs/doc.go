// Package docs holds the pages for users. Its tests run the tutorials as they are written, and
// check links and messages.
package docs

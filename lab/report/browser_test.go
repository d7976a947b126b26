package report

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browserLimit bounds the whole test: a machine may be busy.
const browserLimit = 3 * time.Minute

// browser finds Chromium, or skips.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium: apt install chromium")
	return ""
}

// The page loads nothing from elsewhere, has no errors, and fits on a screen and on a
// telephone, in both schemes. With -artifacts the pictures are kept.
func TestInABrowser(t *testing.T) {
	program := browser(t)
	page := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(page, render(t, synthetic(t, 1), HTML), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), browserLimit)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	defer func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the browser's end
			t.Error(err)
		}
	}()
	var mu sync.Mutex
	var complaints []string
	complain := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	err := errors.Join(chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; u != "file://"+page && !strings.HasPrefix(u, "data:") {
				complain("request for %s", u)
			}
		case *runtime.EventConsoleAPICalled:
			complain("console: %s", e.Type)
		case *runtime.EventExceptionThrown:
			complain("exception: %s", e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			complain("log: %s", e.Entry.Text)
		}
	}), call(ctx, network.Enable, network.EnableParams{}), call(ctx, log.Enable, cdp.Empty{}), call(ctx, runtime.Enable, cdp.Empty{}),
		chromedp.Do(ctx, chromedp.Navigate("file://"+page)))
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			look(t, ctx, scheme, width)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(complaints) > 0 {
		t.Errorf("the browser says:\n%s", strings.Join(complaints, "\n"))
	}
}

// wide lists elements that are wider than the window, and are in no element that scrolls.
const wide = `[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll')).map(e => e.tagName + '.' + e.className.toString()).slice(0, 5).join(' ')`

func look(t *testing.T, ctx context.Context, scheme string, width int64) {
	t.Helper()
	err := errors.Join(chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)),
		call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
	if err != nil {
		t.Fatal(err)
	}
	scrolls := evaluate[int64](t, ctx, `document.documentElement.scrollWidth`)
	window := evaluate[int64](t, ctx, `innerWidth`)
	overflowing := evaluate[string](t, ctx, wide)
	background := evaluate[string](t, ctx, `getComputedStyle(document.body).backgroundColor`)
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if scrolls > window || overflowing != "" || window != width {
		t.Errorf("%s, %d wide: the page is %d wide; too wide: %s", scheme, window, scrolls, overflowing)
	}
	if dark := background == "rgb(20, 24, 29)"; dark != (scheme == "dark") {
		t.Errorf("%s: the background is %s", scheme, background)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), fmt.Sprintf("%s-%d.png", scheme, width)), picture, 0o644); err != nil {
		t.Error(err)
	}
}

func evaluate[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func call[P, R any](ctx context.Context, command cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, command, params)
	return err
}

"""A browser with cookies that visits a page and follows it to its end.

    visit.py URL
"""

import sys
import urllib.request

browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
with browser.open(sys.argv[1], timeout=60) as page:
    print(page.status, page.url.partition("?")[0])

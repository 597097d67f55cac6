-- For wrk: searches with the queries of a JSONL file, and one line of JSON at the end.
--
-- QUERIES  the file; each line has a "query"
-- MODE     lexical, hybrid or auto
-- FRESH    1 makes every query one that was never asked before, so that no cache answers it
-- DISTINCT only so many queries of the file, asked again and again
-- ROUTE    by default /v1/search

local queries, next_query, thread_number = {}, 0, 0

local function escape(text)
  return (text:gsub('[%c"\\]', function(c) return string.format("\\u%04x", c:byte()) end))
end

function setup(thread)
  thread:set("number", thread_number)
  thread_number = thread_number + 1
end

function init()
  for line in io.lines(os.getenv("QUERIES")) do
    -- Queries of the fixtures hold no escaped quotes.
    local query = line:match('"query"%s*:%s*"([^"]*)"')
    if query then queries[#queries + 1] = query end
    if #queries >= tonumber(os.getenv("DISTINCT") or math.huge) then break end
  end
  next_query = number * 7919
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
end

function request()
  next_query = next_query + 1
  local query = queries[next_query % #queries + 1]
  if os.getenv("FRESH") == "1" then
    query = string.format("%s %d", query, number * 100000000 + next_query)
  end
  local body = string.format('{"query":"%s","mode":"%s"}', escape(query), os.getenv("MODE") or "auto")
  return wrk.format(nil, os.getenv("ROUTE") or "/v1/search", nil, body)
end

function done(summary, latency)
  io.write(string.format(
    '{"requests_per_s":%.1f,"p50_ms":%.2f,"p95_ms":%.2f,"p99_ms":%.2f,"requests":%d,"not_2xx":%d,"socket_errors":%d}\n',
    summary.requests / (summary.duration / 1e6), latency:percentile(50) / 1000, latency:percentile(95) / 1000,
    latency:percentile(99) / 1000, summary.requests, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end

//! A server with the API of an embedding endpoint, whose answers a test decides.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// A request as the double has read it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method and path.
    pub line: String,
    /// Lower-case names with values.
    pub headers: Vec<String>,
    /// The body as JSON.
    pub body: Value,
}

impl Request {
    /// The texts to embed.
    pub fn texts(&self) -> Vec<&str> {
        let input = self.body["input"].as_array();
        input
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.headers
            .iter()
            .find_map(|line| line.strip_prefix(&start))
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Further header lines, each with its line break.
    pub headers: &'static str,
    /// The body.
    pub body: String,
    /// Bytes of the body that are sent before the connection is closed; all without it.
    pub cut_at: Option<usize>,
    /// Wait before the answer.
    pub delay: Duration,
}

impl Reply {
    /// An answer of this status.
    pub fn status(status: u16, body: &str) -> Self {
        Reply {
            status,
            headers: "",
            body: body.to_owned(),
            cut_at: None,
            delay: Duration::ZERO,
        }
    }

    /// A good answer with a vector of this length for each text.
    pub fn vectors(request: &Request, dimensions: usize) -> Self {
        let texts = request.texts();
        let (mut data, mut tokens) = (Vec::new(), 0);
        for (index, text) in texts.into_iter().enumerate() {
            data.push(json!({ "index": index, "embedding": vector(text, dimensions) }));
            // As many tokens as words are close enough for a test.
            tokens += text.split_whitespace().count();
        }
        let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
        Reply::status(200, &json!({ "data": data, "usage": usage }).to_string())
    }
}

/// Counts of hashed words: similar texts have similar vectors.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.1; dimensions];
    for word in text.to_lowercase().split(|c: char| !c.is_alphanumeric()) {
        // Always the same, unlike the hashes of the standard library.
        let mut hash = 17_usize;
        for byte in word.bytes() {
            hash = hash.wrapping_mul(31).wrapping_add(usize::from(byte));
        }
        vector[hash % dimensions] += 1.0;
    }
    vector
}

/// The server; it ends when dropped.
pub struct Double {
    /// The base URL, without a path.
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    is_over: Arc<AtomicBool>,
}

impl Double {
    /// Starts a server. `answer` gets the number of the request, from 0.
    pub fn start(answer: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Double::listen(listener, answer)
    }

    /// Starts a server on a port that another one had.
    pub fn listen(
        listener: TcpListener,
        answer: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (requests, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (seen, over): (Arc<Mutex<Vec<Request>>>, _) =
            (Arc::clone(&requests), Arc::clone(&is_over));
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Double {
            url,
            requests,
            is_over,
        }
    }

    /// A server that embeds everything.
    pub fn embedding(dimensions: usize) -> Self {
        Double::start(move |_, request| Reply::vectors(request, dimensions))
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    /// How many texts it was asked to embed so far.
    pub fn texts(&self) -> usize {
        self.requests()
            .iter()
            .map(|request| request.texts().len())
            .sum()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(
    stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    answer: &(dyn Fn(usize, &Request) -> Reply + Send + Sync),
) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let Some(request) = read(&mut reader) else {
        return;
    };
    let number = {
        let mut seen = seen.lock();
        seen.push(request.clone());
        seen.len() - 1
    };
    let reply = answer(number, &request);
    std::thread::sleep(reply.delay);
    let (status, headers, length) = (reply.status, reply.headers, reply.body.len());
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n{headers}\r\n"
    );
    let body = &reply.body.as_bytes()[..reply.cut_at.unwrap_or(length)];
    let mut stream = stream;
    // The client may have gone.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let mut lines = lines.into_iter();
    let mut request = Request {
        line: lines.next()?,
        headers: lines
            .map(|line| match line.split_once(':') {
                Some((name, value)) => format!("{}: {}", name.to_lowercase(), value.trim()),
                None => line,
            })
            .collect(),
        body: Value::Null,
    };
    let length = request
        .header("content-length")
        .unwrap_or("0")
        .parse()
        .ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if !body.is_empty() {
        request.body = serde_json::from_slice(&body).ok()?;
    }
    Some(request)
}

//! An HTTP client for URLs that a model chooses, which does not connect to private addresses
//! (protection against SSRF).
//!
//! Addresses are checked when a connection is made: the resolver itself refuses names with a
//! private address, so that a name cannot change between the check and its use. IP addresses in a
//! URL are checked before the request. The client follows no redirects, decompresses nothing and
//! uses no proxy.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use reqwest::{Client, Request, Response, Url};

/// Looks up the addresses of a name.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// Its addresses.
    ///
    /// # Errors
    /// What the system says.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = tokio::net::lookup_host((host, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }
}

/// Why a request failed or was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The URL is invalid.
    #[error(
        "{url:?} is not a valid URL ({reason}); give one with http or https, a host and a path"
    )]
    NoUrl {
        /// The given text.
        url: String,
        /// The parser's error.
        reason: String,
    },
    /// The scheme is neither http nor https.
    #[error("{scheme}: is not allowed; only http and https are")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The URL contains a user name or password.
    #[error("the URL holds a user name or a password; leave them out")]
    Credentials,
    /// The host's address is not public.
    #[error("{host} is at {address}, which is not a public address; such are not fetched from")]
    Private {
        /// The host as written.
        host: String,
        /// Its address.
        address: IpAddr,
    },
    /// The port is not allowed for this host.
    #[error("of {host} only port {allowed} may be used, not {port}")]
    Port {
        /// The host.
        host: String,
        /// The requested port.
        port: u16,
        /// The allowed port.
        allowed: u16,
    },
    /// The transport failed.
    #[error("{host} cannot be reached: {reason}")]
    Transport {
        /// The host.
        host: String,
        /// The transport's error.
        reason: String,
    },
    /// The body is compressed, and may be a thousand times larger when decompressed.
    #[error(
        "the answer is compressed ({encoding}) although that was not asked for; it is not unpacked"
    )]
    Compressed {
        /// Its encoding.
        encoding: String,
    },
    /// The body is too long.
    #[error("the answer has more than {max_bytes} bytes; ask for less")]
    TooLong {
        /// The limit.
        max_bytes: usize,
    },
}

/// Hosts that are allowed although their address is private: `host` or `host:port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateHosts(pub Vec<String>);

impl PrivateHosts {
    fn entry(&self, host: &str) -> Option<&str> {
        let host = host.trim_matches(['[', ']']);
        let mut entries = self.0.iter().map(String::as_str);
        entries.find(|entry| split_port(entry).0.eq_ignore_ascii_case(host))
    }
}

/// Splits `host:port` and `[v6]:port`. An IPv6 address without brackets has no port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    match entry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host.trim_matches(['[', ']']), port.parse().ok())
        }
        _ => (entry.trim_matches(['[', ']']), None),
    }
}

/// A client that connects only to public addresses and to allowed private hosts.
#[derive(Clone)]
pub struct GuardedClient {
    client: Client,
    private: Arc<PrivateHosts>,
}

impl fmt::Debug for GuardedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedClient")
            .field("private", &self.private)
            .finish_non_exhaustive()
    }
}

impl GuardedClient {
    /// A client with this resolver; `timeout` limits a whole request, including its body.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(
        private: PrivateHosts,
        lookup: Arc<dyn Lookup>,
        timeout: Duration,
    ) -> reqwest::Result<Self> {
        let private = Arc::new(private);
        let resolver = GuardedResolver {
            private: private.clone(),
            lookup,
        };
        let client = toolscout_base::tls::client()
            .dns_resolver(resolver)
            // Callers follow redirects themselves, so that each target is checked like the first
            // URL.
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would resolve names itself, past the check.
            .no_proxy()
            .timeout(timeout)
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            // Each request resolves the name again, and no connection outlives the check of its
            // address.
            .pool_max_idle_per_host(0)
            .user_agent(concat!("toolscout/", env!("CARGO_PKG_VERSION")))
            .default_headers(HeaderMap::from_iter([(
                ACCEPT_ENCODING,
                HeaderValue::from_static("identity"),
            )]))
            .build()?;
        Ok(GuardedClient { client, private })
    }

    /// The client to build requests with.
    pub fn requests(&self) -> &Client {
        &self.client
    }

    /// Sends a request if its URL is allowed.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn send(&self, request: Request) -> Result<Response, NetError> {
        self.check(request.url())?;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let response = self.client.execute(request).await;
        response.map_err(|error| refused_by_resolver(&host, &error))
    }

    /// Checks a URL as far as possible before its host is resolved.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn check(&self, url: &Url) -> Result<(), NetError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(NetError::Scheme {
                scheme: url.scheme().to_owned(),
            });
        }
        // A name before the host can make a URL look as if it led elsewhere.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NetError::Credentials);
        }
        let host = url.host_str().unwrap_or_default();
        if let Some(entry) = self.private.entry(host) {
            let port = url.port_or_known_default().unwrap_or_default();
            // An entry with a port opens only that port: beside a development server there may be a
            // database.
            return match split_port(entry).1 {
                Some(allowed) if allowed != port => Err(NetError::Port {
                    host: host.to_owned(),
                    port,
                    allowed,
                }),
                _ => Ok(()),
            };
        }
        // The URL parser has normalized decimal, octal and hexadecimal forms of addresses.
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) if !is_public(address) => Err(NetError::Private {
                host: host.to_owned(),
                address,
            }),
            _ => Ok(()),
        }
    }
}

/// Parses a URL as browsers do.
///
/// # Errors
/// [`NetError::NoUrl`].
pub fn parse_url(text: &str) -> Result<Url, NetError> {
    match Url::parse(text.trim()) {
        Ok(url) => Ok(url),
        Err(error) => Err(NetError::NoUrl {
            url: toolscout_base::printable::excerpt(text, 200),
            reason: error.to_string(),
        }),
    }
}

/// Reads a body up to a limit.
///
/// # Errors
/// [`NetError::Compressed`], [`NetError::TooLong`], [`NetError::Transport`].
pub async fn body(response: Response, max_bytes: usize) -> Result<Vec<u8>, NetError> {
    let host = response.url().host_str().unwrap_or_default().to_owned();
    if let Some(encoding) = response.headers().get(CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(NetError::Compressed {
            encoding: String::from_utf8_lossy(encoding.as_bytes()).into_owned(),
        });
    }
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| transport(&host, &error))?);
        // `Content-Length` is not believed; what arrives is counted.
        if bytes.len() > max_bytes {
            return Err(NetError::TooLong { max_bytes });
        }
    }
    Ok(bytes)
}

/// True for addresses of the public internet, which excludes loopback, private, link-local and
/// reserved ranges. An IPv6 address that embeds an IPv4 address is judged by the latter.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // Shared by the customers of a provider, IETF assignments, the 6to4 relay, benchmarks, then
        // multicast and reserved.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19))
        || a >= 224;
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    if let Some(embedded) = embedded_v4(address) {
        return is_public_v4(embedded);
    }
    // Teredo and other IETF protocol assignments, then documentation.
    let special = segments[0] == 0x2001 && (segments[1] < 0x200 || segments[1] == 0xdb8);
    let documentation = segments[0] == 0x3fff && segments[1] < 0x1000;
    // Only 2000::/3 is assigned as global unicast.
    (segments[0] & 0xe000) == 0x2000 && !special && !documentation
}

/// The IPv4 address embedded in a mapped, compatible, NAT64 or 6to4 address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => (high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => (high, low),
        // 6to4 has it after the prefix, the others at the end.
        [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

/// Resolves names and refuses those with an address that is not public.
struct GuardedResolver {
    private: Arc<PrivateHosts>,
    lookup: Arc<dyn Lookup>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (private, lookup) = (self.private.clone(), self.lookup.clone());
        Box::pin(async move {
            let host = name.as_str();
            let addresses = lookup.lookup(host).await?;
            // One private address among public ones is enough: the client may connect to any.
            let mut all = addresses.iter().copied();
            if let Some(address) = all.find(|address| !is_public(*address))
                && private.entry(host).is_none()
            {
                let host = host.to_owned();
                return Err(NetError::Private { host, address }.into());
            }
            // The client puts the port of the URL in the place of 0.
            let addresses = addresses.into_iter();
            let addresses: Addrs = Box::new(addresses.map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// The resolver's error, if it is among the causes of the client's error; else a transport error.
fn refused_by_resolver(host: &str, error: &reqwest::Error) -> NetError {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref::<NetError>() {
            return refusal.clone();
        }
        cause = error.source();
    }
    transport(host, error)
}

fn transport(host: &str, error: &reqwest::Error) -> NetError {
    let mut reason = "the connection failed".to_owned();
    if error.is_timeout() {
        reason = "no answer in time".to_owned();
    } else {
        // The innermost cause is the most specific one.
        let mut cause = error.source();
        while let Some(error) = cause {
            reason = error.to_string();
            cause = error.source();
        }
    }
    NetError::Transport {
        host: host.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "2002:808:808::",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn hosts_may_have_a_port() {
        assert_eq!(split_port("a.b:80"), ("a.b", Some(80)));
        assert_eq!(split_port("[::1]:80"), ("::1", Some(80)));
        assert_eq!(
            (split_port("::1"), split_port("a")),
            (("::1", None), ("a", None))
        );
    }
}

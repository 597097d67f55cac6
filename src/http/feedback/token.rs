//! Proof that an answer was given: signed, so that nothing has to be remembered of it, whichever
//! node of a data directory gave it and however often it was started since.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// How long feedback may take: as long as a client may gather it before it sends it.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Ids that an answer can prove; it has up to 50 hits, and each may name near-duplicates.
const MAX_IDS: usize = 256;
/// Longer than any token: 256 ids and 16 queries as numbers of up to 10 digits, and a request id.
pub const MAX_BYTES: usize = 8 << 10;
const MAC_BYTES: usize = 16;

/// The secret of a data directory that signs its answers.
#[derive(Clone)]
pub struct Signer([u8; 32]);

/// What an answer is about.
pub struct Answer<'a> {
    /// The catalog that was searched: its name and its identity.
    pub catalog: [&'a str; 2],
    /// The key that asked, if any.
    pub key: Option<&'a str>,
    /// The id of the request.
    pub request_id: &'a str,
}

/// What a token says, all but the request's id as keyed hashes: short, and nothing that can be
/// looked for.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Claims {
    at_s: u64,
    catalog: u32,
    key: u32,
    request_id: String,
    queries: Vec<u32>,
    ids: Vec<u32>,
}

/// An answer that was given here.
#[derive(Debug)]
pub struct Proof<'a> {
    signer: &'a Signer,
    claims: Claims,
}

impl Signer {
    /// Signs with this secret.
    pub fn new(secret: [u8; 32]) -> Self {
        Signer(secret)
    }

    /// The token of an answer with its queries and the ids of its hits.
    pub fn token<'a>(
        &self,
        answer: &Answer<'_>,
        queries: impl Iterator<Item = &'a str>,
        ids: impl Iterator<Item = &'a str>,
        now: SystemTime,
    ) -> String {
        let claims = Claims {
            at_s: seconds(now),
            catalog: self.hash("catalog", &answer.catalog),
            key: self.key_hash(answer.key),
            request_id: answer.request_id.to_owned(),
            queries: queries
                .map(|query| self.hash("query", &[query.trim()]))
                .collect(),
            ids: ids.take(MAX_IDS).map(|id| self.hash("id", &[id])).collect(),
        };
        // A struct of numbers and text always serialises.
        let mut bytes = serde_json::to_vec(&claims).unwrap_or_default();
        let mac = self.mac(&bytes);
        bytes.extend(mac);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a token.
    ///
    /// # Errors
    /// Why it proves nothing.
    pub fn read(
        &self,
        token: &str,
        answer: &Answer<'_>,
        now: SystemTime,
    ) -> Result<Proof<'_>, &'static str> {
        const FORGED: &str =
            "it was not given by this server; send feedback_token of the answer as it is";
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| FORGED)?;
        let (claims, mac) = bytes.split_last_chunk::<MAC_BYTES>().ok_or(FORGED)?;
        if !bool::from(subtle::ConstantTimeEq::ct_eq(
            &self.mac(claims)[..],
            &mac[..],
        )) {
            return Err(FORGED);
        }
        let claims: Claims = serde_json::from_slice(claims).map_err(|_| FORGED)?;
        if claims.catalog != self.hash("catalog", &answer.catalog) {
            return Err("it is of an answer of another catalog");
        }
        if claims.key != self.key_hash(answer.key) {
            return Err("it is of an answer to another key");
        }
        if seconds(now).saturating_sub(claims.at_s) > MAX_AGE.as_secs() {
            return Err("it is older than seven days");
        }
        Ok(Proof {
            signer: self,
            claims,
        })
    }

    fn key_hash(&self, key: Option<&str>) -> u32 {
        key.map_or(0, |key| self.hash("key", &[key]))
    }

    fn hash(&self, kind: &str, parts: &[&str]) -> u32 {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in [kind].iter().chain(parts) {
            hasher
                .update(&(part.len() as u64).to_le_bytes())
                .update(part.as_bytes());
        }
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    fn mac(&self, claims: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        let whole = hasher.update(b"token").update(claims).finalize();
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&whole.as_bytes()[..MAC_BYTES]);
        mac
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Proof<'_> {
    /// The id of the request that was answered.
    pub fn request_id(&self) -> &str {
        &self.claims.request_id
    }

    /// True when the tool was among the hits.
    pub fn names(&self, id: &str) -> bool {
        self.claims.ids.contains(&self.signer.hash("id", &[id]))
    }

    /// True when this was asked.
    pub fn answers(&self, query: &str) -> bool {
        self.claims
            .queries
            .contains(&self.signer.hash("query", &[query.trim()]))
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = UNIX_EPOCH;

    fn answer(key: Option<&str>) -> Answer<'_> {
        Answer {
            catalog: ["c", "1"],
            key,
            request_id: "r-1",
        }
    }

    fn token(signer: &Signer) -> String {
        signer.token(
            &answer(Some("k")),
            ["mail it"].into_iter(),
            ["s/send"].into_iter(),
            NOW,
        )
    }

    #[test]
    fn a_token_proves_its_queries_and_hits_and_no_others() {
        let signer = Signer::new([7; 32]);
        let token = token(&signer);
        let proof = signer.read(&token, &answer(Some("k")), NOW).unwrap();
        assert_eq!(proof.request_id(), "r-1");
        assert!(proof.names("s/send") && !proof.names("s/delete"));
        assert!(proof.answers(" mail it ") && !proof.answers("delete it"));
    }

    #[test]
    fn another_key_catalog_secret_or_time_and_every_changed_letter_are_refused() {
        let signer = Signer::new([7; 32]);
        let token = token(&signer);
        let read = |token: &str, answer: &Answer<'_>, after: Duration| {
            signer.read(token, answer, NOW + after).is_ok()
        };
        assert!(read(&token, &answer(Some("k")), MAX_AGE));
        assert!(!read(
            &token,
            &answer(Some("k")),
            MAX_AGE + Duration::from_secs(1)
        ));
        assert!(!read(&token, &answer(Some("other")), Duration::ZERO));
        assert!(!read(&token, &answer(None), Duration::ZERO));
        let other = Answer {
            catalog: ["c", "2"],
            ..answer(Some("k"))
        };
        assert!(!read(&token, &other, Duration::ZERO));
        assert!(
            Signer::new([8; 32])
                .read(&token, &answer(Some("k")), NOW)
                .is_err()
        );
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(
                !read(&changed, &answer(Some("k")), Duration::ZERO),
                "letter {place}"
            );
        }
        assert!(!read("", &answer(Some("k")), Duration::ZERO));
    }
}

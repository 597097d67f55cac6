//! Tokens that prove that a search was answered. They are signed, so the server stores nothing for
//! them, and every server of the data directory accepts them, also after a restart.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use toolscout_base::clock::unix_s;

/// How long a token is valid: clients may collect feedback before they send it.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most ids in a token. An answer has up to 50 hits, and each may have near-duplicates.
const MAX_IDS: usize = 256;
/// Longer than any token: 256 ids and 16 queries as numbers of up to 10 digits, and a request id.
pub const MAX_BYTES: usize = 8 << 10;
const MAC_BYTES: usize = 16;

/// The secret of a data directory that signs its answers.
#[derive(Clone)]
pub struct Signer([u8; 32]);

/// The context of a search.
pub struct SearchContext<'a> {
    /// The name and the identity of the catalog that was searched.
    pub catalog: [&'a str; 2],
    /// The id of the key that searched, if any.
    pub key: Option<&'a str>,
    /// The id of the request.
    pub request_id: &'a str,
}

/// The content of a token. All but the request id are keyed hashes: they are short, and nobody can
/// find out the originals by trying.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Claims {
    at_s: u64,
    catalog: u32,
    key: u32,
    request_id: String,
    queries: Vec<u32>,
    ids: Vec<u32>,
}

/// The answer that a valid token belongs to.
#[derive(Debug)]
pub struct VerifiedAnswer<'a> {
    signer: &'a Signer,
    claims: Claims,
}

impl Signer {
    /// A signer with this secret.
    pub fn new(secret: [u8; 32]) -> Self {
        Signer(secret)
    }

    /// The token of an answer to these queries, with the ids of its hits.
    pub fn token<'a>(
        &self,
        context: &SearchContext<'_>,
        queries: impl Iterator<Item = &'a str>,
        ids: impl Iterator<Item = &'a str>,
        now: SystemTime,
    ) -> String {
        let claims = Claims {
            at_s: unix_s(now),
            catalog: self.hash("catalog", &context.catalog),
            key: self.key_hash(context.key),
            request_id: context.request_id.to_owned(),
            queries: queries
                .map(|query| self.hash("query", &[query.trim()]))
                .collect(),
            ids: ids.take(MAX_IDS).map(|id| self.hash("id", &[id])).collect(),
        };
        // A struct of numbers and strings always serialises.
        let mut bytes = serde_json::to_vec(&claims).unwrap_or_default();
        let mac = self.mac(&bytes);
        bytes.extend(mac);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Verifies a token of an answer in this context.
    ///
    /// # Errors
    /// Why it is not valid.
    pub fn verify(
        &self,
        token: &str,
        context: &SearchContext<'_>,
        now: SystemTime,
    ) -> Result<VerifiedAnswer<'_>, &'static str> {
        const FORGED: &str =
            "it is not from this server; send feedback_token of the answer unchanged";
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| FORGED)?;
        let (claims, mac) = bytes.split_last_chunk::<MAC_BYTES>().ok_or(FORGED)?;
        // Compared in constant time, and before the claims are parsed.
        if !bool::from(subtle::ConstantTimeEq::ct_eq(
            &self.mac(claims)[..],
            &mac[..],
        )) {
            return Err(FORGED);
        }
        let claims: Claims = serde_json::from_slice(claims).map_err(|_| FORGED)?;
        // A catalog that was deleted and created again has another identity.
        if claims.catalog != self.hash("catalog", &context.catalog) {
            return Err("it belongs to an answer of another catalog");
        }
        if claims.key != self.key_hash(context.key) {
            return Err("it belongs to an answer to another key");
        }
        if unix_s(now).saturating_sub(claims.at_s) > MAX_AGE.as_secs() {
            return Err("it is older than seven days");
        }
        Ok(VerifiedAnswer {
            signer: self,
            claims,
        })
    }

    fn key_hash(&self, key: Option<&str>) -> u32 {
        key.map_or(0, |key| self.hash("key", &[key]))
    }

    fn hash(&self, kind: &str, parts: &[&str]) -> u32 {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        // With their lengths, so that no two lists of parts give the same input.
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

impl VerifiedAnswer<'_> {
    /// The id of the request that was answered.
    pub fn request_id(&self) -> &str {
        &self.claims.request_id
    }

    /// Whether the tool was among the hits.
    pub fn has_hit(&self, id: &str) -> bool {
        self.claims.ids.contains(&self.signer.hash("id", &[id]))
    }

    /// Whether this was one of the queries.
    pub fn has_query(&self, query: &str) -> bool {
        self.claims
            .queries
            .contains(&self.signer.hash("query", &[query.trim()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn context(key: Option<&str>) -> SearchContext<'_> {
        SearchContext {
            catalog: ["c", "1"],
            key,
            request_id: "r-1",
        }
    }

    fn token(signer: &Signer) -> String {
        signer.token(
            &context(Some("k")),
            ["mail it"].into_iter(),
            ["s/send"].into_iter(),
            NOW,
        )
    }

    #[test]
    fn a_token_has_its_queries_and_hits_and_no_others() {
        let signer = Signer::new([7; 32]);
        let token = token(&signer);
        let answer = signer.verify(&token, &context(Some("k")), NOW).unwrap();
        assert_eq!(answer.request_id(), "r-1");
        assert!(answer.has_hit("s/send") && !answer.has_hit("s/delete"));
        assert!(answer.has_query(" mail it ") && !answer.has_query("delete it"));
    }

    #[test]
    fn a_token_is_refused_for_another_key_catalog_or_secret_when_old_and_when_changed() {
        let signer = Signer::new([7; 32]);
        let token = token(&signer);
        let is_valid = |token: &str, context: &SearchContext<'_>, age: Duration| {
            signer.verify(token, context, NOW + age).is_ok()
        };
        assert!(is_valid(&token, &context(Some("k")), MAX_AGE));
        assert!(!is_valid(
            &token,
            &context(Some("k")),
            MAX_AGE + Duration::from_secs(1)
        ));
        assert!(!is_valid(&token, &context(Some("other")), Duration::ZERO));
        assert!(!is_valid(&token, &context(None), Duration::ZERO));
        let other = SearchContext {
            catalog: ["c", "2"],
            ..context(Some("k"))
        };
        assert!(!is_valid(&token, &other, Duration::ZERO));
        assert!(
            Signer::new([8; 32])
                .verify(&token, &context(Some("k")), NOW)
                .is_err()
        );
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(
                !is_valid(&changed, &context(Some("k")), Duration::ZERO),
                "letter {place}"
            );
        }
        assert!(!is_valid("", &context(Some("k")), Duration::ZERO));
    }
}

//! The files of logins: readable by their owner alone, replaced whole, one for each URL of a server.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use oauth2::TokenResponse as _;
use reqwest::Url;
use rmcp::transport::{AuthError, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio::time::{Instant, sleep};

use super::LoginError;
use toolscout_base::known_secrets;

/// The folder in the data directory.
const FOLDER: &str = "mcp-logins";
/// How long to wait for another process that renews the tokens of a server.
const LOCK_LIMIT: Duration = Duration::from_secs(50);
/// How often the lock is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// How often a file is looked at while somebody may log in.
const LOOK_FOR_LOGIN: Duration = Duration::from_secs(1);

/// The logins of a data directory; by default those of none, where nothing is kept.
#[derive(Clone, Debug, Default)]
pub struct Logins {
    folder: Option<PathBuf>,
}

impl Logins {
    /// The logins in this data directory.
    pub fn in_data_dir(data: &Path) -> Self {
        Logins {
            folder: Some(data.join(FOLDER)),
        }
    }

    /// Waits until somebody has logged in or out at the server with this URL.
    pub async fn changed(&self, url: &Url) {
        match self.file(url) {
            Some(file) => file.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until somebody has logged out at the server with this URL, where somebody is logged in.
    pub async fn ended(&self, url: &Url) {
        match self.file(url) {
            Some(file) => file.removed().await,
            None => std::future::pending().await,
        }
    }

    /// The file of a server's login; `None` where none is kept.
    pub fn file(&self, url: &Url) -> Option<LoginFile> {
        let mut url = url.clone();
        // Servers never see it, so it makes no other login.
        url.set_fragment(None);
        let hash = blake3::hash(url.as_str().as_bytes()).to_hex();
        let host: String = url
            .host_str()
            .unwrap_or_default()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(64)
            .collect();
        // The host for people; the hash because of what a URL may contain.
        let name = format!("{host}-{}.json", &hash[..16]);
        Some(LoginFile {
            path: self.folder.as_ref()?.join(name),
            url: url.into(),
        })
    }
}

/// The login of one server.
#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    /// The server that the tokens are for.
    url: String,
    /// The secret of the client that logged in, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    #[serde(flatten)]
    credentials: StoredCredentials,
}

impl Login {
    /// The token of requests; empty if there is none.
    pub fn access_token(&self) -> &str {
        match &self.credentials.token_response {
            Some(response) => response.access_token().secret(),
            None => "",
        }
    }

    /// The token that renews the other; `None` where there is none.
    pub fn refresh_token(&self) -> Option<&str> {
        let response = self.credentials.token_response.as_ref()?;
        Some(response.refresh_token()?.secret())
    }

    /// How long an access token is valid; `None` if the server did not say.
    pub fn lifetime(&self) -> Option<Duration> {
        self.credentials.token_response.as_ref()?.expires_in()
    }

    /// When the access token expires; `None` if the server did not say.
    pub fn expires_at(&self) -> Option<SystemTime> {
        let received = Duration::from_secs(self.credentials.token_received_at?);
        SystemTime::UNIX_EPOCH.checked_add(received.checked_add(self.lifetime()?)?)
    }

    /// What the tokens may be used for.
    pub fn scopes(&self) -> &[String] {
        &self.credentials.granted_scopes
    }

    /// The authorization server, as it calls itself.
    pub fn issuer(&self) -> Option<&str> {
        self.credentials.issuer.as_deref()
    }

    /// The client that logged in.
    pub fn client(&self) -> (&str, Option<&str>) {
        (&self.credentials.client_id, self.client_secret.as_deref())
    }

    /// Everything that must appear nowhere.
    pub fn secrets(&self) -> Vec<&str> {
        let own = [Some(self.access_token()), self.refresh_token()];
        own.into_iter()
            .chain([self.client_secret.as_deref()])
            .flatten()
            .collect()
    }
}

/// The file of one login.
#[derive(Clone, Debug)]
pub struct LoginFile {
    path: PathBuf,
    url: String,
}

impl LoginFile {
    /// The login; `None` without a file.
    ///
    /// # Errors
    /// [`LoginError::File`], [`LoginError::Damaged`].
    pub fn read(&self) -> Result<Option<Login>, LoginError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.failed("read", source)),
        };
        let damaged = |reason: String| LoginError::Damaged {
            path: self.path.clone(),
            reason,
        };
        // Only the place, since the message of the parser may quote a token.
        let login: Login = serde_json::from_str(&text).map_err(|error| {
            damaged(format!("line {}, column {}", error.line(), error.column()))
        })?;
        if login.url == self.url {
            Ok(Some(login))
        } else {
            Err(damaged("it is of another server".into()))
        }
    }

    /// Replaces the login.
    ///
    /// # Errors
    /// [`LoginError::File`].
    pub fn write(
        &self,
        client_secret: Option<String>,
        credentials: StoredCredentials,
    ) -> Result<(), LoginError> {
        let login = Login {
            url: self.url.clone(),
            client_secret,
            credentials,
        };
        let written = self.create_folder().and_then(|folder| {
            // Such a file is its owner's alone from the beginning.
            let mut file = NamedTempFile::new_in(folder)?;
            file.write_all(&serde_json::to_vec_pretty(&login)?)?;
            // Before the rename: a crash must not leave an empty file in place of the tokens.
            file.as_file().sync_all()?;
            file.persist(&self.path)?;
            Ok(())
        });
        written.map_err(|source| self.failed("write", source))
    }

    /// Deletes the login, and says whether there was one.
    ///
    /// # Errors
    /// [`LoginError::File`].
    pub fn delete(&self) -> Result<bool, LoginError> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.failed("delete", source)),
        }
    }

    /// Keeps other processes from renewing the tokens while the file that is returned is open. Of a
    /// refresh token that works once, only one process may make use.
    ///
    /// # Errors
    /// [`LoginError::File`], [`LoginError::Locked`].
    pub async fn lock(&self) -> Result<File, LoginError> {
        let path = self.path.with_extension("lock");
        let opened = self.create_folder().and_then(|_| open_private(&path));
        let file = opened.map_err(|source| self.failed("lock", source))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(source)) => return Err(self.failed("lock", source)),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= LOCK_LIMIT => {
                    return Err(LoginError::Locked {
                        path,
                        seconds: LOCK_LIMIT.as_secs(),
                    });
                }
                Err(TryLockError::WouldBlock) => sleep(LOCK_PAUSE).await,
            }
        }
    }

    /// Waits until the login is another than now.
    async fn changed(&self) {
        let now = self.modified();
        while self.modified() == now {
            sleep(LOOK_FOR_LOGIN).await;
        }
    }

    fn modified(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).ok()?.modified().ok()
    }

    /// Waits until there is no login, after there was one.
    async fn removed(&self) {
        while !self.path.exists() {
            sleep(LOOK_FOR_LOGIN).await;
        }
        while self.path.exists() {
            sleep(LOOK_FOR_LOGIN).await;
        }
    }

    fn create_folder(&self) -> io::Result<&Path> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if !folder.is_dir() {
            fs::create_dir_all(folder)?;
            #[cfg(unix)]
            fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        }
        Ok(folder)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> LoginError {
        LoginError::File {
            action,
            path: self.path.clone(),
            source,
        }
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The file as the SDK reads and writes it.
pub struct Credentials {
    /// The file.
    pub file: LoginFile,
    /// Written with the tokens, which the SDK does not do.
    pub client_secret: Option<String>,
}

#[async_trait]
impl CredentialStore for Credentials {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let Some(login) = self.file.read().map_err(of_store)? else {
            return Ok(None);
        };
        for secret in login.secrets() {
            known_secrets::add(secret);
        }
        Ok(Some(login.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.file
            .write(self.client_secret.clone(), credentials)
            .map_err(of_store)
    }

    /// Called when a server names another authorization server than at the login. The login stays,
    /// because that may be a mistake of the server's that lasts a minute.
    async fn clear(&self) -> Result<(), AuthError> {
        Ok(())
    }
}

fn of_store(error: LoginError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> StoredCredentials {
        serde_json::from_value(serde_json::json!({
            "client_id": "me", "token_received_at": 1000,
            "token_response": { "access_token": "aaa", "token_type": "bearer", "expires_in": 60,
                "refresh_token": "rrr" },
        }))
        .unwrap()
    }

    #[test]
    fn a_login_is_its_owners_alone_and_comes_back_as_it_was() {
        let data = tempfile::tempdir().unwrap();
        let logins = Logins::in_data_dir(data.path());
        let url: Url = "https://mcp.example.com/mcp?k=1#x".parse().unwrap();
        let file = logins.file(&url).unwrap();
        assert!(file.read().unwrap().is_none());
        file.write(Some("sss".into()), credentials()).unwrap();
        let login = file.read().unwrap().unwrap();
        assert_eq!(
            (login.access_token(), login.refresh_token(), login.client()),
            ("aaa", Some("rrr"), ("me", Some("sss")))
        );
        assert_eq!(
            login.expires_at(),
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1060))
        );
        assert_eq!(login.secrets(), ["aaa", "rrr", "sss"]);
        #[cfg(unix)]
        for (path, expected) in [(&*file.path, 0o600), (file.path.parent().unwrap(), 0o700)] {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected, "{}", path.display());
        }
        assert!(file.delete().unwrap() && !file.delete().unwrap());
    }

    #[test]
    fn urls_have_files_of_their_own_and_a_file_of_another_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let logins = Logins::in_data_dir(data.path());
        let file = |url: &str| logins.file(&url.parse().unwrap()).unwrap();
        let (a, b) = (file("https://a.b/mcp"), file("https://a.b/mcp2"));
        a.write(None, credentials()).unwrap();
        assert!(b.read().unwrap().is_none());
        fs::copy(&a.path, &b.path).unwrap();
        let refused = b.read().err().unwrap().to_string();
        assert!(refused.contains("of another server"), "{refused}");
        fs::write(&b.path, "{\"access_token\": \"secret\", x").unwrap();
        let refused = b.read().err().unwrap().to_string();
        assert!(
            refused.contains("line 1") && !refused.contains("secret"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn of_two_that_renew_one_waits() {
        let data = tempfile::tempdir().unwrap();
        let logins = Logins::in_data_dir(data.path());
        let file = logins.file(&"https://a.b/mcp".parse().unwrap()).unwrap();
        let held = file.lock().await.unwrap();
        let second = tokio::time::timeout(Duration::from_millis(100), file.lock()).await;
        assert!(second.is_err(), "both have the lock");
        drop(held);
        file.lock().await.unwrap();
    }
}

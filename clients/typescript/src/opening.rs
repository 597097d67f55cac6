//! What a script says of a catalog that it opens.

use napi::Result;
use napi_derive::napi;
use toolscout_native::opening::{self, Open};

use crate::errors::OrReject;

/// Where a catalog is, and how it is opened.
#[napi(object)]
pub struct Opening {
    /// The data directory; that of the settings where not given.
    pub data: Option<String>,
    /// Its name; that of the settings where not given.
    pub name: Option<String>,
    /// Its embedders; its own or those of the settings where not given.
    pub embedder: Option<String>,
    /// The configuration file.
    pub config: Option<String>,
    /// Whether it is created where it does not exist.
    pub create: bool,
    /// Whether it is in a folder that is deleted with it.
    pub temporary: bool,
}

impl Opening {
    /// Opens the catalog.
    ///
    /// # Errors
    /// `invalid_settings`, `unknown_catalog`, `io_failed` where no folder can be created, and others
    /// of the engine.
    pub fn open(self) -> Result<Open> {
        let opening = opening::Opening {
            data: self.data.map(Into::into),
            name: self.name,
            embedder: self.embedder,
            config: self.config.map(Into::into),
            create: self.create,
            temporary: self.temporary,
        };
        opening.resolve().or_reject()?.open().or_reject()
    }
}

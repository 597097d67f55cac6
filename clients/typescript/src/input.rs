//! Tools in any form that JavaScript has them in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::Result;
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;
use toolscout_native::input::{self, Reader};

use crate::errors::OrReject;
use crate::work::{Work, promise};

/// An item that is no valid tool, and was left out.
#[napi(object)]
#[derive(Clone)]
pub struct Skipped {
    /// Its position in the input, from 1.
    pub position: Option<u32>,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Why it is no valid tool.
    pub error: String,
}

impl From<input::Skipped> for Skipped {
    fn from(skipped: input::Skipped) -> Self {
        Skipped {
            position: skipped
                .position
                .and_then(|position| u32::try_from(position).ok()),
            name: skipped.name,
            error: skipped.error,
        }
    }
}

/// The input of a write, which is read part by part before the write begins.
#[napi]
pub struct Input {
    reader: Arc<Mutex<Reader>>,
}

impl Input {
    /// The input that this reader reads.
    pub fn new(reader: Reader) -> Self {
        Input {
            reader: Arc::new(Mutex::new(reader)),
        }
    }

    /// What reads it, shared with whoever writes what was read.
    pub fn reader(&self) -> Arc<Mutex<Reader>> {
        Arc::clone(&self.reader)
    }

    fn then(
        &self,
        read: impl FnOnce(&mut Reader) -> toolscout_native::Result<()> + Send + 'static,
    ) -> AsyncTask<Work<()>> {
        let reader = self.reader();
        promise(move || read(&mut locked(&reader)).or_reject())
    }
}

/// What reads the input.
pub fn locked(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

#[napi]
impl Input {
    /// Reads the next items of a list, which are a list of JSON.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn items(&self, json: String, count: u32) -> AsyncTask<Work<()>> {
        self.then(move |reader| {
            let before = reader.count(count as usize)?;
            reader.parse(json.as_bytes(), before)
        })
    }

    /// Reads JSON, NDJSON or YAML.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn text(&self, text: String) -> AsyncTask<Work<()>> {
        self.then(move |reader| reader.parse(text.as_bytes(), 0))
    }

    /// Ends reading.
    #[napi]
    pub fn finish(&self) -> Result<()> {
        locked(&self.reader).finish().or_reject()
    }

    /// Reads a file, a folder or a URL.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn location(&self, location: String) -> AsyncTask<Work<()>> {
        self.then(move |reader| reader.open(location))
    }
}

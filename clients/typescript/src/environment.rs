//! The environment of a script: the process, or one of its worker threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use napi::bindgen_prelude::AsyncTask;
use napi::{Env, Result};
use napi_derive::napi;
use toolscout_native::opening::Open;

use crate::catalog::Catalog;
use crate::errors::error;
use crate::opening::Opening;
use crate::work::{Cancellation, Work, promise};

/// A catalog until it is closed.
pub type Slot = RwLock<Option<Arc<Open>>>;

/// What is open in a slot.
///
/// # Errors
/// `catalog_closed`, with the path of the catalog.
pub fn opened(slot: &Slot, path: &str) -> Result<Arc<Open>> {
    let open = slot.read().unwrap_or_else(PoisonError::into_inner);
    open.clone().ok_or_else(|| {
        let message = format!("the catalog {path} was closed; open it again with Catalog.open");
        error("catalog_closed", message)
    })
}

/// The environment of a script. Work under way ends with it, and temporary catalogs leave nothing.
#[napi]
pub struct Environment {
    ending: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<Weak<Slot>>>>,
}

#[napi]
impl Environment {
    /// The environment of the calling script.
    #[napi(constructor)]
    pub fn new(env: Env) -> Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        // A worker thread may be terminated without a word to its script.
        env.add_env_cleanup_hook(Arc::clone(&ending), |ending| {
            ending.store(true, Ordering::Relaxed);
        })?;
        Ok(Environment {
            ending,
            open: Arc::default(),
        })
    }

    /// Opens a catalog.
    #[napi(ts_return_type = "Promise<Catalog>")]
    pub fn open(&self, opening: Opening) -> AsyncTask<Work<Catalog>> {
        let all = Arc::clone(&self.open);
        promise(move || {
            let catalog = Catalog::of(opening.open()?);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|slot| slot.strong_count() > 0);
            all.push(catalog.slot());
            Ok(catalog)
        })
    }

    /// Makes what can end a call early.
    #[napi]
    pub fn cancellation(&self) -> Cancellation {
        Cancellation::new(Arc::clone(&self.ending))
    }

    /// Ends all work, and closes all catalogs.
    #[napi]
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in all.drain(..).filter_map(|slot| slot.upgrade()) {
            let mut open = slot.write().unwrap_or_else(PoisonError::into_inner);
            drop(open.take());
        }
    }
}

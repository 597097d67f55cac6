//! Work on a thread of Node's pool, and how it is ended early.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use napi::bindgen_prelude::{AsyncTask, ToNapiValue, TypeName};
use napi::{Env, Result, Task};
use napi_derive::napi;

use crate::errors::error;

/// Does work on another thread, and keeps its promise with what it returns.
pub fn promise<T>(job: impl FnOnce() -> Result<T> + Send + 'static) -> AsyncTask<Work<T>>
where
    T: ToNapiValue + TypeName + Send + 'static,
{
    AsyncTask::new(Work(Some(Box::new(job))))
}

/// Work that is done once.
pub struct Work<T>(Option<Box<dyn FnOnce() -> Result<T> + Send>>);

impl<T: ToNapiValue + TypeName + Send + 'static> Task for Work<T> {
    type Output = T;
    type JsValue = T;

    fn compute(&mut self) -> Result<T> {
        let Some(job) = self.0.take() else {
            return Err(error("internal", "the work was done already"));
        };
        // A panic must not get into Node, which it would abort.
        catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
            let text = text_of(&*panic);
            Err(error("internal", format!("the engine panicked: {text}")))
        })
    }

    fn resolve(&mut self, _env: Env, output: T) -> Result<T> {
        Ok(output)
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Ends work early, between two of its steps.
#[napi]
pub struct Cancellation {
    signal: Signal,
}

impl Cancellation {
    /// A cancellation of work in an environment, which ends with it.
    pub fn new(ending: Arc<AtomicBool>) -> Self {
        let cancelled = Arc::new(AtomicBool::new(false));
        Cancellation {
            signal: Signal { cancelled, ending },
        }
    }

    /// What work looks at.
    pub fn signal(&self) -> Signal {
        self.signal.clone()
    }
}

#[napi]
impl Cancellation {
    /// Ends the work.
    #[napi]
    pub fn cancel(&self) {
        self.signal.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Says to work whether it should end.
#[derive(Clone)]
pub struct Signal {
    cancelled: Arc<AtomicBool>,
    /// The whole process, or its worker thread, ends.
    ending: Arc<AtomicBool>,
}

impl Signal {
    /// Whether the work should end.
    pub fn is_set(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.ending.load(Ordering::Relaxed)
    }

    /// Fails where the work should end.
    ///
    /// # Errors
    /// `cancelled`.
    pub fn check(&self) -> Result<()> {
        match self.is_set() {
            true => Err(error("cancelled", "the call was cancelled")),
            false => Ok(()),
        }
    }
}

//! Opens the engine of an address.

use toolscout_base::config::{ExternalProduct, ExternalSettings};

use crate::elastic::Elastic;
use crate::engine::Engine;
use crate::failure::{Cause, Failure};
use crate::pgvector::PgVector;
use crate::qdrant::Qdrant;

/// The index of these settings; nothing is sent yet.
///
/// # Errors
/// What is wrong with the address or the key.
pub fn open(settings: &ExternalSettings) -> Result<Box<dyn Engine>, Failure> {
    let read = settings.store.read();
    let read = read.map_err(|error| Failure::new(Cause::Request, error.to_string()))?;
    Ok(match read.product {
        ExternalProduct::Elasticsearch | ExternalProduct::OpenSearch => {
            Box::new(Elastic::new(settings, &read)?)
        }
        ExternalProduct::Qdrant => Box::new(Qdrant::new(settings, &read)?),
        ExternalProduct::Pgvector => Box::new(PgVector::new(settings, &read)?),
    })
}

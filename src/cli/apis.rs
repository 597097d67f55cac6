//! What a profile says about the operations of APIs.

use anyhow::Result;

use crate::agent::profile::AgentProfile;
use crate::tools::builtin::files::Root;
use crate::tools::operation::Operations;

/// The operations that a profile lets be called; what finds their tools is still missing.
pub fn operations(profile: &AgentProfile) -> Result<Operations> {
    let environment = |name: &str| std::env::var(name).ok();
    let files = profile.tools.files.as_ref().map(Root::open).transpose()?;
    Ok(Operations::new(&profile.operations, environment)?.with_files(files))
}

//! Who sends a request, and in which session.

use axum::http::request::Parts;
use rmcp::model::ProtocolVersion;
use rmcp::service::{RequestContext, RoleServer};

use super::calls::Principal;
use super::kept_results::Reader;
use super::{NAME_CHARS, SESSION_ID, Session};
use toolscout_base::printable::excerpt;
use toolscout_finder::finder::Style;
use toolscout_finder::profiles::ToolProfile;
use toolscout_gate::gate::Caller;
use toolscout_gate::usage::Origin;

impl Session {
    /// The caller that a request acts for.
    pub(super) fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let Principal { who, may_change } = principal(context);
        let client = context
            .client_info()
            .map(|info| excerpt(&format!("{} {}", info.name, info.version), NAME_CHARS));
        let profile = self.shared.profile.as_deref();
        Caller {
            who,
            identity: self.shared.config.identity.clone(),
            conversation: session_id(context).unwrap_or(&self.id).to_owned(),
            client,
            only_reads: !may_change,
            classes: profile.and_then(ToolProfile::classes),
            place: profile.map(ToolProfile::place).unwrap_or_default(),
        }
    }

    /// Who asks, and in which conversation. Requests without a session are one conversation of their
    /// sender.
    pub(super) fn conversation(&self, context: &RequestContext<RoleServer>) -> (String, String) {
        let Caller {
            who, conversation, ..
        } = self.caller(context);
        match has_session(context) {
            true => (who, conversation),
            false => (who, String::new()),
        }
    }

    /// Who searches, for the record of use. Requests without a session are no conversation.
    pub(super) fn origin(&self, context: &RequestContext<RoleServer>) -> Origin {
        let mut origin = self.caller(context).origin();
        if !has_session(context) {
            origin.session = None;
        }
        origin
    }

    pub(super) fn reader(&self, context: &RequestContext<RoleServer>) -> Reader {
        match has_session(context) {
            true => Reader::Session(self.id.clone()),
            false => Reader::Key(self.caller(context).who),
        }
    }

    pub(super) fn style(&self, context: &RequestContext<RoleServer>) -> Style {
        if has_session(context) {
            self.shared.config.style
        } else {
            Style::Dispatch
        }
    }
}

/// Who sends a request: over HTTP as the key was checked, and on standard input the user.
pub(super) fn principal(context: &RequestContext<RoleServer>) -> Principal {
    let Some(parts) = context.extensions.get::<Parts>() else {
        return Principal::local();
    };
    match parts.extensions.get::<Principal>() {
        Some(principal) => principal.clone(),
        None => Principal::unknown(),
    }
}

/// The id of the session that a request belongs to, where the transport gave it one.
pub(super) fn session_id(context: &RequestContext<RoleServer>) -> Option<&str> {
    // Without sessions the client chooses the content of this header freely.
    if !has_session(context) {
        return None;
    }
    let parts = context.extensions.get::<Parts>()?;
    parts.headers.get(SESSION_ID)?.to_str().ok()
}

/// Since protocol 2026-07-28 there are no sessions over HTTP: each request has a new handler.
pub(super) fn has_session(context: &RequestContext<RoleServer>) -> bool {
    let is_http = context.extensions.get::<Parts>().is_some();
    match context.protocol_version() {
        _ if !is_http => true,
        Some(version) => version < ProtocolVersion::V_2026_07_28,
        None => false,
    }
}

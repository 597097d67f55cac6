//! Skills of the servers, as clients list them. Their files are resources.

use std::collections::BTreeSet;

use rmcp::model::{ErrorData, GetSkillResult, MetaObject, Skill};
use serde_json::json;

use super::{NAME_CHARS, Session};
use toolscout_base::printable::excerpt;

impl Session {
    /// The skills of all servers. Of two with one URI, the first is listed, since the names of their files
    /// are relative to it.
    pub(super) async fn skills(&self) -> Vec<Skill> {
        let (mut skills, mut taken) = (Vec::new(), BTreeSet::new());
        for (server, offers) in self.shared.offers().await {
            for skill in &offers.skills {
                if taken.insert(skill.entry.uri.clone()) {
                    skills.push(marked(skill.entry.clone(), &server));
                }
            }
        }
        skills
    }

    /// One skill, which no list need have.
    ///
    /// # Errors
    /// If no server has it.
    pub(super) async fn skill(&self, uri: &str) -> Result<GetSkillResult, ErrorData> {
        for server in self.servers_for_skill(uri).await {
            let Ok(connection) = self.shared.pool.connection(&server).await else {
                continue;
            };
            // One that does not have it answers with an error.
            if let Ok(mut given) = connection.skill(uri).await
                && given.skill.uri == uri
            {
                given.skill = marked(given.skill, &server);
                return Ok(given);
            }
        }
        let uri = excerpt(uri, NAME_CHARS);
        let message = format!(
            "no connected server has the skill {uri:?}; `skills/list` names those there are"
        );
        Err(ErrorData::invalid_params(message, None))
    }

    /// The servers that may have a skill: the one that lists it, or else those that have skills at all, so
    /// that no other server is started for it.
    async fn servers_for_skill(&self, uri: &str) -> Vec<String> {
        let mut with_skills = Vec::new();
        for (server, offers) in self.shared.offers().await {
            let mut skills = offers.skills.iter();
            if skills.any(|skill| skill.entry.uri == uri) {
                return vec![server];
            }
            if self.shared.pool.has_skills(&server) {
                with_skills.push(server);
            }
        }
        with_skills
    }
}

/// The skill with the server that it is of.
fn marked(mut skill: Skill, server: &str) -> Skill {
    let meta = skill.meta.get_or_insert_with(MetaObject::new);
    let says = json!({ "server": server });
    meta.0.insert("toolscout".into(), says);
    skill
}

//! Which tools of a list are the client's own, as Bash and Read of a coding agent: every task needs
//! them, so they stay in view beside the tools of its MCP servers.

/// What names of tools of MCP servers begin with, as some clients show them.
const OF_SERVERS: &str = "mcp_";
/// What stands between the names of a server and of its tool, as others show them.
const WITHIN_SERVER: &str = "__";
/// From this number of well-known tools on, a list is that of a coding agent.
const MIN_KNOWN: usize = 3;
/// The tools that coding agents have, without separators and case.
const KNOWN: [&str; 61] = [
    "agent",
    "applypatch",
    "bash",
    "checklist",
    "codebasesearch",
    "createfile",
    "createnewfile",
    "edit",
    "editexistingfile",
    "editfile",
    "editor",
    "execcommand",
    "executecommand",
    "fetch",
    "fetchwebcontent",
    "filesearch",
    "glob",
    "globsearch",
    "grep",
    "grepsearch",
    "insertedit",
    "list",
    "listbash",
    "listdir",
    "listdirectory",
    "listfiles",
    "ls",
    "multiedit",
    "patch",
    "read",
    "readbash",
    "readfile",
    "readfiles",
    "readmanyfiles",
    "replace",
    "replaceinfile",
    "rg",
    "ripgrep",
    "runcommand",
    "runcommands",
    "runinterminal",
    "runshellcommand",
    "runterminalcommand",
    "searchcodebase",
    "searchfiles",
    "shell",
    "singlefindandreplace",
    "skill",
    "stopbash",
    "strreplaceeditor",
    "task",
    "todo",
    "todowrite",
    "updateplan",
    "view",
    "webfetch",
    "websearch",
    "write",
    "writefile",
    "writestdin",
    "writetofile",
];

/// A tool of a list, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'t> {
    /// Its place in the list.
    pub place: usize,
    /// Its name.
    pub name: &'t str,
    /// Whether it is in a namespace.
    pub is_in_namespace: bool,
    /// Its tokens.
    pub tokens: usize,
}

impl Candidate<'_> {
    fn is_of_server(&self) -> bool {
        self.is_in_namespace || names_server(self.name)
    }
}

/// The places of the client's own tools, as far as the budget goes: well-known ones first, then the
/// others in their order.
///
/// In a list with tools of MCP servers, which are in a namespace or have names such as
/// `mcp__mail__send`, `mcp_mail_send` or `mail__send`, all others are the client's own. In any other
/// list the well-known ones are, if there are at least [`MIN_KNOWN`].
pub fn places(tools: &[Candidate<'_>], budget_tokens: usize) -> Vec<usize> {
    let others = tools.iter().filter(|tool| !tool.is_of_server());
    let (known, further): (Vec<_>, Vec<_>) = others.partition(|tool| is_known(tool.name));
    let own: Vec<&Candidate<'_>> = if tools.iter().any(Candidate::is_of_server) {
        known.into_iter().chain(further).collect()
    } else if known.len() >= MIN_KNOWN {
        known
    } else {
        Vec::new()
    };
    let mut left = budget_tokens;
    let mut places = Vec::new();
    for tool in own {
        // A smaller tool may still fit after one that does not.
        if let Some(rest) = left.checked_sub(tool.tokens) {
            left = rest;
            places.push(tool.place);
        }
    }
    places
}

fn names_server(name: &str) -> bool {
    // A name that begins with the separator, as `__init`, names no server.
    name.starts_with(OF_SERVERS) || matches!(name.find(WITHIN_SERVER), Some(end) if end > 0)
}

fn is_known(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    KNOWN.binary_search(&plain.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own<'t>(names: &[&'t str], budget_tokens: usize) -> Vec<&'t str> {
        let candidates: Vec<Candidate<'_>> = names
            .iter()
            .enumerate()
            .map(|(place, name)| Candidate {
                place,
                name,
                is_in_namespace: name.contains('.'),
                tokens: 10,
            })
            .collect();
        let places = places(&candidates, budget_tokens);
        places.into_iter().map(|place| names[place]).collect()
    }

    #[test]
    fn known_names_are_sorted() {
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn beside_tools_of_servers_all_others_are_own() {
        for of_server in [
            "mcp__mail__send",
            "mcp_mail_send",
            "mail__send",
            "mail.send",
        ] {
            assert_eq!(own(&["_Plan", of_server, "Bash"], 100), ["Bash", "_Plan"]);
        }
    }

    #[test]
    fn elsewhere_the_well_known_ones_of_a_coding_agent_are() {
        let names = ["mail_send", "bash", "read_file", "write"];
        assert_eq!(own(&names, 100), ["bash", "read_file", "write"]);
        assert!(own(&["mail_send", "bash", "weather"], 100).is_empty());
        assert!(own(&[], 100).is_empty());
    }

    #[test]
    fn the_budget_bounds_them_and_well_known_ones_come_first() {
        let names = ["Plan", "mcp__a__b", "Read", "Bash"];
        assert_eq!(own(&names, 25), ["Read", "Bash"]);
        assert!(own(&names, 0).is_empty());
    }
}

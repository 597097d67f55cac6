//! How the servers of a request's candidates compare, and the tools within each.

/// Best candidates of a server that its mean is taken of.
const BEST: usize = 3;

/// The candidates' scores by server.
pub struct ByServer(Vec<Server>);

struct Server {
    /// A number that identifies it.
    id: u32,
    /// Of its candidates, the best first.
    scores: Vec<f32>,
}

/// A candidate within its server, and the server among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// 1 / place of the server by its best candidate.
    pub server_rank: f32,
    /// The server's best score less that of all candidates.
    pub server_gap: f32,
    /// The mean of the server's three best scores.
    pub server_best: f32,
    /// 1 / place of the candidate within its server.
    pub rank_in_server: f32,
    /// The candidate's score less the best of its server.
    pub gap_in_server: f32,
}

impl ByServer {
    /// Groups candidates, each with its server and its score. Those without a server are left out.
    pub fn new(candidates: impl Iterator<Item = (Option<u32>, f32)>) -> Self {
        let mut servers: Vec<Server> = Vec::new();
        for (server, score) in candidates {
            let Some(id) = server else { continue };
            match servers.iter_mut().find(|other| other.id == id) {
                Some(known) => known.scores.push(score),
                None => servers.push(Server {
                    id,
                    scores: vec![score],
                }),
            }
        }
        for server in &mut servers {
            server.scores.sort_unstable_by(|a, b| b.total_cmp(a));
        }
        ByServer(servers)
    }

    /// The standing of a candidate with this score; zeros for one without a server. `best` is the
    /// best score of all candidates.
    pub fn standing(&self, server: Option<u32>, score: f32, best: f32) -> Standing {
        let Some(own) = self.0.iter().find(|other| Some(other.id) == server) else {
            return Standing::default();
        };
        let of_server = own.scores[0];
        let better_servers = self.0.iter().filter(|other| other.scores[0] > of_server);
        let better_tools = own.scores.iter().filter(|other| **other > score);
        let top = &own.scores[..own.scores.len().min(BEST)];
        Standing {
            server_rank: 1.0 / (better_servers.count() + 1) as f32,
            server_gap: of_server - best,
            server_best: top.iter().sum::<f32>() / top.len() as f32,
            rank_in_server: 1.0 / (better_tools.count() + 1) as f32,
            gap_in_server: score - of_server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_ranked_by_their_best_tool_and_tools_within_them() {
        let candidates = [
            (Some(1), 0.5),
            (Some(2), 0.75),
            (Some(1), 0.25),
            (None, 1.0),
        ];
        let by_server = ByServer::new(candidates.into_iter());
        let standing = |server, score| by_server.standing(server, score, 1.0);
        assert_eq!(
            standing(Some(2), 0.75),
            Standing {
                server_rank: 1.0,
                server_gap: -0.25,
                server_best: 0.75,
                rank_in_server: 1.0,
                gap_in_server: 0.0,
            }
        );
        assert_eq!(
            standing(Some(1), 0.25),
            Standing {
                server_rank: 0.5,
                server_gap: -0.5,
                server_best: 0.375,
                rank_in_server: 0.5,
                gap_in_server: -0.25,
            }
        );
        assert_eq!(standing(None, 1.0), Standing::default());
    }

    #[test]
    fn equal_tools_share_a_place() {
        let equal = ByServer::new([(Some(1), 0.5), (Some(1), 0.5)].into_iter());
        assert_eq!(equal.standing(Some(1), 0.5, 0.5).rank_in_server, 1.0);
    }
}

//! How many tools are looked for, wherever they are.

/// Texts of a query, clauses included, for which tools are looked for.
pub const MAX_TEXTS: usize = 12;
/// Tools that are looked for at least for each of them.
const MIN_FOR_TEXT: usize = 20;
/// Tools that are least similar to a text. Scores are scaled from the least similar one of all.
pub const FARTHEST: usize = 8;
/// Tools that stand for those that are not found.
pub const SAMPLE: usize = 100;
/// Tools that are looked for by name.
pub const MAX_NAMED: usize = 50;

/// How many tools are looked for, for one of several texts, if all of them get `all`. The first is the whole request.
pub fn limit_of_text(place: usize, texts: usize, all: usize) -> usize {
    let limit = match (place, texts) {
        (_, 1) => all,
        (0, _) => all / 2,
        _ => all / 2 / (texts - 1),
    };
    limit.max(MIN_FOR_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_request_gets_half_and_its_clauses_share_the_rest() {
        assert_eq!(limit_of_text(0, 1, 400), 400);
        assert_eq!(limit_of_text(0, 5, 400), 200);
        assert_eq!(limit_of_text(4, 5, 400), 50);
        assert_eq!(limit_of_text(11, MAX_TEXTS, 100), MIN_FOR_TEXT);
    }
}

//! What swells: small input that takes much memory or time.

use reqwest::Method;

use super::server::{Server, read};
use super::table::{Attack, Section};

pub const SECTION: Section = Section {
    title: "What swells",
    attacks: &[
        Attack {
            tried: "A list of a million numbers, empty objects or short texts where tools were expected",
            happens: "It is walked as text, and given up after 1,000 bad items, in less memory than its length",
            test: "a_list_without_tools_takes_no_memory_and_reading_stops_early",
        },
        Attack {
            tried: "The same over HTTP",
            happens: "400 `unreadable_tools` with the first bad item, and nothing is written",
            test: "a_body_of_numbers_is_refused",
        },
        Attack {
            tried: "The same as lines of NDJSON",
            happens: "Given up after 1,000 bad lines",
            test: "lines_without_tools_take_no_memory_and_reading_stops_early",
        },
        Attack {
            tried: "A tool whose schema is one long list of numbers or small objects",
            happens: "Refused once its values would take 24 times its length and 64 MiB",
            test: "memory_of_dense_values_in_a_tool_is_bounded_by_their_length",
        },
        Attack {
            tried: "Hundreds of thousands of tools of a dozen bytes each",
            happens: "Refused at the same bound",
            test: "memory_of_many_small_tools_is_bounded_by_their_length",
        },
        Attack {
            tried: "Lists of numbers in YAML",
            happens: "Refused before they are parsed, or given up after 1,000 bad items",
            test: "memory_of_yaml_is_bounded_like_that_of_json",
        },
        Attack {
            tried: "Thousands of paths of an OpenAPI document that refer to one large path item",
            happens: "Refused once what is copied would take 24 times its length and 64 MiB",
            test: "memory_of_an_openapi_document_with_shared_parts_is_bounded",
        },
        Attack {
            tried: "A server URL of an OpenAPI document whose variables multiply its length",
            happens: "The URL stays as it is declared",
            test: "a_server_url_whose_variables_multiply_is_not_filled_in",
        },
        Attack {
            tried: "A provider sends text, one event, or nothing that the client sees, without end, or 64 KiB too much in one piece, in each API",
            happens: "The answer ends at 16 MiB (`--max-answer`) with an error in the form of the API; all answers that are being read share memory for four of these",
            test: "an_answer_without_end_ends_with_an_error_of_the_api",
        },
        Attack {
            tried: "A provider sends events of 15 MB, eight of them at a time",
            happens: "They are read beside the threads that answer, as many at a time as there are processors",
            test: "others_work_while_a_long_text_is_read",
        },
        Attack {
            tried: "A model makes more calls than anyone reads: of the client's tools, of the search, in one round or in several",
            happens: "The answer ends with an error in the form of the API after 512 calls (`--max-answer-calls`), and after ten rounds it has to do without searching (`--dropin-rounds`)",
            test: "calls_and_hidden_rounds_of_an_answer_are_bounded",
        },
        Attack {
            tried: "A plan puts one large result into many arguments: in a text, in lists, in objects, from JSON within a text, in many steps",
            happens: "The bound of arguments (1 MiB) holds for what is sent, and the arguments of a whole plan have at most 4 MiB",
            test: "results_in_arguments_count_towards_their_length",
        },
        Attack {
            tried: "A schema of 2 KB whose parts refer to each other twice, 24 levels deep: `$ref` in `allOf`, `anyOf`, `oneOf`, `not`, `if`, `unevaluatedProperties`",
            happens: "What it stands for is counted, not followed. Beyond 10,000 the tool is kept, marked `uncheckedSchema`, and its arguments are checked at the top alone",
            test: "schemas_that_grow_are_checked_at_the_top_alone_and_at_once",
        },
        Attack {
            tried: "Arguments that make a check grow: nested ones for a schema that refers to itself, 100,000 items with `uniqueItems` and `minContains`, texts for patterns that go back, numbers with large exponents",
            happens: "The steps of a check are counted before it, and beyond a million the arguments are checked at the top alone. A long check runs beside the threads that answer",
            test: "checks_that_grow_with_the_arguments_end",
        },
        Attack {
            tried: "Descriptions of 4 MiB, so that ranking takes seconds",
            happens: "The ranker reads the first 4 KiB of each text",
            test: "only_the_beginning_of_long_texts_is_read",
        },
        Attack {
            tried: "A search whose budget is used up before ranking",
            happens: "It answers without ranking, and says so in `degraded`",
            test: "a_budget_used_up_before_ranking_skips_it_and_is_reported",
        },
        Attack {
            tried: "An MCP server whose tools have descriptions over 16 KiB, or have over 256 KiB",
            happens: "These tools are left out, with the reason",
            test: "tools_of_servers_that_say_too_much_are_left_out",
        },
        Attack {
            tried: "Broken HTML for `web_fetch`: unclosed formatting, tables within tables, half tags, a million attributes",
            happens: "Its tokens are read in one pass; no tree is built and nothing is laid out",
            test: "malformed_pages_are_read_in_one_pass",
        },
        Attack {
            tried: "Files of a catalog's derived data with other bytes in them",
            happens: "They are rebuilt, and answers stay the same",
            test: "catalog_file",
        },
    ],
};

#[tokio::test]
async fn a_body_of_numbers_is_refused() {
    let server = Server::start().await;
    for body in [
        format!("[{}0]", "0,".repeat(1 << 20)),
        format!("{{\"tools\":[{}{{}}]}}", "{},".repeat(1 << 20)),
    ] {
        let request = server.request(Method::POST, "/v1/catalogs/default/tools");
        let answer = read(
            request
                .header("content-type", "application/json")
                .body(body),
        )
        .await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (400, "unreadable_tools"),
            "{answer:?}"
        );
        assert!(
            answer.message().contains("more than 1000 of its items"),
            "{answer:?}"
        );
    }
    let page = server.get("/v1/catalogs/default/tools").await;
    assert_eq!(page.body["total"], 0, "{page:?}");
}

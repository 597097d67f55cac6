//! Requests and tools in languages other than English.

use std::sync::Arc;

use serde_json::json;
use toolscout_index::embed::{MultilingualTable, StaticTable};
use toolscout_index::{
    Catalog, DataDir, Embedder, Error, Fusion, Mode, Options, Query, Results, Searcher, Tool,
};

fn tables() -> Vec<Arc<dyn Embedder>> {
    vec![
        StaticTable::bundled().unwrap(),
        MultilingualTable::bundled().unwrap(),
    ]
}

fn catalog(dir: &tempfile::TempDir, tools: &[(&str, &str, &str)]) -> Catalog {
    let tools: Vec<Tool> = tools
        .iter()
        .map(|(server, name, description)| {
            let tool = json!({"server": server, "name": name, "description": description});
            serde_json::from_value(tool).unwrap()
        })
        .collect();
    let options = Options::new(tables());
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", options)
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools).unwrap();
    writer.commit().unwrap();
    catalog
}

fn open(dir: &tempfile::TempDir) -> Catalog {
    let options = Options::new(tables());
    DataDir::new(dir.path()).open("c", options).unwrap()
}

const ENGLISH: &[(&str, &str, &str)] = &[
    (
        "weather",
        "get_forecast",
        "The weather forecast for a city for the next days.",
    ),
    (
        "calendar",
        "create_event",
        "Creates an event in the calendar.",
    ),
    (
        "mail",
        "send_email",
        "Sends an email to one or more people.",
    ),
    ("music", "play_song", "Plays a song."),
    ("files", "delete_file", "Deletes a file."),
    (
        "shop",
        "refund_order",
        "Pays the money of an order back to the customer.",
    ),
    ("repo", "create_issue", "Opens an issue in a repository."),
    ("home", "lock_door", "Locks a door of the house."),
];

fn ask(searcher: &Searcher, query: Query) -> Results {
    searcher.search(&query).unwrap()
}

fn first(searcher: &Searcher, text: &str) -> String {
    let results = ask(searcher, Query::new(text).k(1));
    results
        .hits
        .first()
        .map(|hit| hit.id.to_string())
        .unwrap_or_default()
}

fn embedders(results: &Results) -> Vec<&str> {
    let ids = results.embedders.iter();
    ids.filter_map(|id| id.split('/').next()).collect()
}

#[test]
fn requests_in_other_languages_find_english_tools() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = catalog(&dir, ENGLISH).searcher();
    for (request, tool) in [
        ("明天北京的天气怎么样", "weather/get_forecast"),
        ("播放一首歌", "music/play_song"),
        ("明日の天気を教えて", "weather/get_forecast"),
        ("이 노래 틀어 줘", "music/play_song"),
        ("¿Puedes cerrar la puerta de casa?", "home/lock_door"),
        (
            "qual é a previsão do tempo para amanhã",
            "weather/get_forecast",
        ),
        ("supprime ce fichier s'il te plaît", "files/delete_file"),
        ("Spiel ein Lied für mich", "music/play_song"),
        ("elimina il file vecchio", "files/delete_file"),
        ("какая погода будет завтра", "weather/get_forecast"),
    ] {
        assert_eq!(first(&searcher, request), tool, "{request}");
    }
}

#[test]
fn english_parts_of_the_search_read_the_translation() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = catalog(&dir, ENGLISH).searcher();
    let results = ask(&searcher, Query::new("elimina il file vecchio").explain());
    assert_eq!(embedders(&results), ["languages-table", "static-table"]);
    let explain = results.hits[0].explain.as_ref().unwrap();
    assert!(explain.translation.as_ref().unwrap().contains("file"));
    assert!(results.confidence.is_some());

    let english = ask(&searcher, Query::new("delete the old file").explain());
    assert_eq!(embedders(&english), ["static-table"]);
    assert_eq!(english.hits[0].explain.as_ref().unwrap().translation, None);
}

#[test]
fn tools_in_other_languages_are_found_in_both_languages() {
    let dir = tempfile::tempdir().unwrap();
    let mut tools = ENGLISH.to_vec();
    tools.push(("wuliu", "kuaidi_chaxun", "查询快递包裹的物流状态"));
    tools.push(("biji", "xinjian_biji", "新建一条笔记"));
    let searcher = catalog(&dir, &tools).searcher();
    for (request, tool) in [
        ("查询我的快递包裹", "wuliu/kuaidi_chaxun"),
        ("查詢我的快遞包裹", "wuliu/kuaidi_chaxun"),
        ("delete the file", "files/delete_file"),
        ("明天北京的天气怎么样", "weather/get_forecast"),
    ] {
        assert_eq!(first(&searcher, request), tool, "{request}");
    }
    let chinese_only = tempfile::tempdir().unwrap();
    let searcher = catalog(&chinese_only, &tools[ENGLISH.len()..]).searcher();
    let results = ask(&searcher, Query::new("查询快递"));
    assert_eq!(embedders(&results), ["languages-table"]);
    assert_eq!(results.hits[0].id.as_str(), "wuliu/kuaidi_chaxun");
    let english = ask(
        &searcher,
        Query::new("track the parcel of the express delivery"),
    );
    assert_eq!(embedders(&english), ["languages-table"]);
    assert_eq!(english.hits[0].id.as_str(), "wuliu/kuaidi_chaxun");
}

#[test]
fn odd_texts_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = catalog(&dir, ENGLISH).searcher();
    let long = "查询天气".repeat(3000);
    for request in [
        "查",
        "я",
        "ñ",
        "🙂",
        "احذف الملف",
        "\u{202e}delete\u{202c}",
        "ｄｅｌｅｔｅ　ｔｈｅ　ｆｉｌｅ",
        "delete 删除 удалить ファイル 파일 🙂 الملف",
        "ภาษาไทย",
        "\u{0301}\u{0301}",
        &long[..8190],
    ] {
        for mode in [Mode::Auto, Mode::Dense, Mode::Lexical] {
            let results = ask(&searcher, Query::new(request).mode(mode));
            assert!(
                results.hits.iter().all(|hit| hit.score.is_finite()),
                "{request}"
            );
        }
    }
    assert_eq!(
        first(&searcher, "ｄｅｌｅｔｅ　ｔｈｅ　ｆｉｌｅ"),
        "files/delete_file"
    );
}

#[test]
fn vectors_of_both_tables_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let request = "明天北京的天气怎么样";
    let before = ask(&catalog(&dir, ENGLISH).searcher(), Query::new(request)).hits;
    let after = ask(&open(&dir).searcher(), Query::new(request)).hits;
    assert_eq!(scores(&before), scores(&after));
}

/// Vectors for other languages stay in their file until a request needs them.
#[test]
fn what_happens_to_the_file_before_a_request_needs_it_changes_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let request = || Query::new("明天北京的天气怎么样");
    let describe = |number| format!("Counts the sheep of meadow {number}.");
    let names: Vec<(String, String)> = (0..200)
        .map(|number| (format!("count_{number}"), describe(number)))
        .collect();
    let many = names
        .iter()
        .map(|(name, description)| ("sheep", name.as_str(), description.as_str()));
    let tools: Vec<(&str, &str, &str)> = ENGLISH.iter().copied().chain(many).collect();
    let written = catalog(&dir, &tools);
    let file = written.path().join("languages-table.vectors");
    let expected = scores(&ask(&written.searcher(), request()).hits);
    let good = std::fs::read(&file).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let cases: [(&str, Option<&[u8]>); 4] = [
        ("intact", Some(&good)),
        ("damaged", Some(&damaged)),
        ("cut short", Some(&good[..good.len() / 2])),
        ("removed", None),
    ];
    for (case, left) in cases {
        std::fs::write(&file, &good).unwrap();
        let reopened = open(&dir);
        match left {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let searcher = reopened.searcher();
        // In English none is needed.
        assert_eq!(first(&searcher, "weather forecast"), "weather/get_forecast");
        assert_eq!(
            scores(&ask(&searcher, request()).hits),
            expected,
            "{case} before the request"
        );
        // Opened anew without a good file, all is computed at once.
        let anew = open(&dir);
        let found = ask(&anew.searcher(), request()).hits;
        assert_eq!(scores(&found), expected, "{case} before opening");
        assert!(std::fs::read(&file).unwrap() == good, "{case}: written");
    }
    // A commit takes over what the former snapshot has not read yet.
    std::fs::write(&file, &good).unwrap();
    let reopened = open(&dir);
    let mut writer = reopened.writer().unwrap();
    let tool = json!({"server": "sheep", "name": "shear", "description": "Shears a sheep."});
    writer
        .upsert(&[serde_json::from_value(tool).unwrap()])
        .unwrap();
    writer.commit().unwrap();
    assert_eq!(
        first(&reopened.searcher(), "天气预报"),
        "weather/get_forecast"
    );
}

fn scores(hits: &[toolscout_index::hit::Hit]) -> Vec<(String, f32)> {
    hits.iter()
        .map(|hit| (hit.id.to_string(), hit.score))
        .collect()
}

#[test]
fn a_damaged_table_is_refused() {
    let reason = |bytes: Vec<u8>| match MultilingualTable::read(bytes) {
        Err(Error::Embedder { reason, .. }) => reason,
        Err(other) => other.to_string(),
        Ok(_) => "read".to_owned(),
    };
    let whole =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/languages.bin")).unwrap();
    assert_eq!(reason(whole.clone()), "read");
    assert!(reason(whole[..whole.len() - 1].to_vec()).contains("bytes, it has"));
    assert!(reason(whole[..20].to_vec()).contains("no table of languages"));
    assert!(reason(vec![7; 500]).contains("no table of languages"));
    let changed = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= value;
        bytes
    };
    assert!(reason(changed(whole.len() - 9, 1)).contains("checksum"));
    assert!(reason(changed(8, 2)).contains("layout"));
    assert!(reason(changed(48, 255)).contains("dimensions"));
    assert!(reason(changed(45, 255)).contains("bytes, it has"));
}

#[test]
fn a_few_tools_in_another_language_are_not_first_for_every_english_request_by_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let chinese = [("notes", "xie_biji", "写一条笔记并保存。")];
    let catalog = catalog(&dir, &[ENGLISH, &chinese].concat());
    for (request, expected) in [
        ("lock the front door", "home/lock_door"),
        ("weather in Paris tomorrow", "weather/get_forecast"),
        ("give the customer the money back", "shop/refund_order"),
    ] {
        let query = Query::new(request).fusion(Fusion::Rrf);
        let results = catalog.searcher().search(&query).unwrap();
        let found: Vec<&str> = results.hits.iter().map(|hit| hit.id.as_str()).collect();
        assert_eq!(found[0], expected, "{request}: {found:?}");
        assert_ne!(found[1], "notes/xie_biji", "{request}: {found:?}");
    }
}

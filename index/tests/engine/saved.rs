//! The files of tools and vectors that a large catalog is opened from: the same answers as from the
//! database alone, whatever has changed since, and nothing is built on a damaged database.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;
use toolscout_index::{Catalog, DataDir, Error, Query, Tool, ToolId};

use crate::world::{Chance, assert_alike, embed_all, fresh, hashing, some_text, some_tool};

const FILES: [&str; 2] = ["tools.snapshot", "hashing-64.vectors"];
/// Enough for files to be written.
const TOOLS: usize = 1500;

fn tools(chance: &mut Chance, first: usize, count: usize) -> Vec<Tool> {
    let tool = |number| some_tool(chance, &format!("server{number}"));
    (first..first + count).map(tool).collect()
}

fn queries(chance: &mut Chance) -> Vec<Query> {
    let texts = (0..20).map(|_| some_text(chance));
    let named = ["server7/send_mail".to_owned()];
    texts
        .chain(named)
        .flat_map(|text| {
            [
                Query::new(text.as_str()),
                Query::new(text).fold_duplicates(),
            ]
        })
        .collect()
}

fn open(data: &DataDir) -> Catalog {
    data.open("c", hashing()).unwrap()
}

fn contents(catalog: &Path) -> Vec<Vec<u8>> {
    FILES
        .iter()
        .map(|name| fs::read(catalog.join(name)).unwrap())
        .collect()
}

fn large() -> (TempDir, DataDir, Vec<Tool>) {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let tools = tools(&mut Chance::new(3), 0, TOOLS);
    drop(fresh(&data, "c", &tools));
    (dir, data, tools)
}

#[test]
fn a_catalog_opened_from_its_files_is_the_one_that_was_written() {
    let (_dir, data, mut expected) = large();
    let chance = &mut Chance::new(5);
    let queries = queries(chance);
    let written = contents(open(&data).path());
    for round in 0..3 {
        let other = tempfile::tempdir().unwrap();
        let anew = fresh(&DataDir::new(other.path()), "c", &expected);
        let catalog = open(&data);
        let place = format!("round {round}");
        assert_alike(&catalog.searcher(), &anew.searcher(), &queries, &place);
        // Too little for the files to be written again.
        let added = tools(chance, TOOLS + 10 * round, 10);
        let removed = expected.split_off(expected.len() - 10);
        let mut changed = expected[round].clone();
        changed.description.push_str(" Also mail.");
        expected[round] = changed.clone();
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&added).unwrap();
        writer.upsert(&[changed]).unwrap();
        let removed: Vec<ToolId> = removed.into_iter().map(|tool| tool.id).collect();
        writer.remove(&removed).unwrap();
        writer.commit().unwrap();
        embed_all(&mut writer);
        expected.extend(added);
        assert!(written == contents(catalog.path()), "{place}");
    }
}

#[test]
fn a_missing_or_damaged_file_costs_time_only() {
    let (_dir, data, _) = large();
    let queries = queries(&mut Chance::new(7));
    let before = open(&data);
    let written = contents(before.path());
    let damages: [fn(&Path); 4] = [
        |file| fs::remove_file(file).unwrap(),
        |file| fs::write(file, "no file of ours").unwrap(),
        |file| {
            let mut bytes = fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(file, bytes).unwrap();
        },
        |file| {
            let bytes = fs::read(file).unwrap();
            fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        for name in FILES {
            damage(&before.path().join(name));
            let place = format!("damage {number} of {name}");
            let after = open(&data);
            assert_alike(&before.searcher(), &after.searcher(), &queries, &place);
            assert!(
                written == contents(after.path()),
                "{place}: not written again"
            );
        }
    }
}

#[test]
fn files_of_another_catalog_are_not_used() {
    let (_dir, data, _) = large();
    let other = tempfile::tempdir().unwrap();
    let other = DataDir::new(other.path());
    let others = tools(&mut Chance::new(9), 0, TOOLS);
    let expected = fresh(&other, "c", &others);
    for name in FILES {
        fs::copy(open(&data).path().join(name), expected.path().join(name)).unwrap();
    }
    let queries = queries(&mut Chance::new(11));
    assert_alike(&expected.searcher(), &open(&other).searcher(), &queries, "");
}

#[test]
fn nothing_is_built_on_a_damaged_database() {
    let (_dir, data, tools) = large();
    let queries = queries(&mut Chance::new(13));
    let before = open(&data);
    let database = Connection::open(before.path().join("tools.db")).unwrap();
    let change = "UPDATE tools SET json = replace(json, 'a', 'b') WHERE id = ?1";
    database.execute(change, [tools[0].id.as_str()]).unwrap();
    drop(database);
    let after = open(&data);
    assert_alike(
        &before.searcher(),
        &after.searcher(),
        &queries,
        "from the file",
    );
    let is_damage = |error: Error| error.to_string().contains("is not what was written");
    assert!(after.verify().is_err_and(is_damage));
    assert!(after.writer().is_err_and(is_damage));
    // Rows that are gone are noticed at once.
    let database = Connection::open(before.path().join("tools.db")).unwrap();
    let remove = "DELETE FROM tools WHERE id = ?1";
    database.execute(remove, [tools[1].id.as_str()]).unwrap();
    drop(database);
    let reopened = data.open("c", hashing());
    let is_damage = |error: Error| error.to_string().contains("not those that were committed");
    assert!(reopened.is_err_and(is_damage));
}

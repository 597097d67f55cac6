//! A catalog that follows another one.

use toolscout_index::{DataDir, Error, Followed, Options, Query, Settings, Tool};

fn tool(server: &str, name: &str, description: &str) -> Tool {
    Tool::new(server, name)
        .unwrap()
        .with_description(description)
}

fn followed(generation: u64) -> Followed {
    Followed {
        source: "cluster/7".to_owned(),
        generation,
        mark: generation ^ 0xf00d,
    }
}

#[test]
fn a_copy_has_the_generation_of_its_source_and_no_changes_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::new(folder.path());
    let catalog = data.open_or_create("c", Options::default()).unwrap();
    assert_eq!(data.followed("c").unwrap(), None);
    let mut writer = catalog.writer().unwrap();
    writer
        .upsert(&[tool("mail", "send", "Sends a message.")])
        .unwrap();
    writer.set_followed(&followed(41)).unwrap();
    writer.commit().unwrap();
    assert_eq!(catalog.searcher().generation(), 41);
    assert_eq!(catalog.stats().unwrap().generation, 41);

    // A commit without changes, as that of vectors, is no new generation.
    writer.commit().unwrap();
    assert_eq!(catalog.searcher().generation(), 41);
    assert_eq!(data.followed("c").unwrap(), Some(followed(41)));

    let own = [tool("mail", "read", "Reads messages.")];
    let changes: [&dyn Fn(&mut toolscout_index::Writer); 3] = [
        &|writer| drop(writer.upsert(&own).unwrap()),
        &|writer| {
            drop(
                writer
                    .remove(&[Tool::new("mail", "send").unwrap().id])
                    .unwrap(),
            )
        },
        &|writer| writer.set_settings(&Settings::default()).unwrap(),
    ];
    for change in changes {
        change(&mut writer);
        assert!(matches!(writer.commit(), Err(Error::Followed { .. })));
    }
    let unchanged = writer
        .upsert(&[tool("mail", "send", "Sends a message.")])
        .unwrap();
    assert_eq!(unchanged.unchanged, 1);
    writer.commit().unwrap();
    let results = catalog.searcher().search(&Query::new("message")).unwrap();
    assert_eq!((results.hits.len(), results.generation), (1, 41));

    writer.upsert(&own).unwrap();
    writer.set_followed(&followed(42)).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let again = data.open("c", Options::default()).unwrap();
    assert_eq!(again.searcher().followed(), Some(&followed(42)));
    assert_eq!(again.searcher().len(), 2);
}

//! The files under deploy/ are read, and what they give the program is understood by it.

use std::path::Path;
use std::process::Command;

use serde::Deserialize as _;
use serde_yaml_ng::{Deserializer, Value};
use toolscout::config::{STORE_VARIABLES, StoreAddress, StoreSettings};

use super::postgres::fixture;

fn documents(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture(path)).unwrap();
    Deserializer::from_str(&text)
        .map(|document| {
            let mut value = Value::deserialize(document).unwrap();
            value.apply_merge().unwrap();
            value
        })
        .collect()
}

/// Fails unless the program knows these arguments.
fn assert_understood(arguments: &Value) {
    let arguments: Vec<&str> = arguments
        .as_sequence()
        .unwrap_or_else(|| panic!("no arguments: {arguments:?}"))
        .iter()
        .map(|argument| argument.as_str().expect("a text"))
        .collect();
    let help = Command::new(env!("CARGO_BIN_EXE_toolscout"))
        .args(&arguments)
        .arg("--help")
        .output()
        .unwrap();
    assert!(help.status.success(), "{arguments:?}: {help:?}");
}

fn assert_settings(variables: &Value) {
    let variables = variables.as_mapping().expect("variables");
    let others = ["TOOLSCOUT_LOG_FORMAT"];
    for (name, _) in variables {
        let name = name.as_str().expect("a name");
        let is_known = STORE_VARIABLES.contains(&name) || others.contains(&name);
        assert!(is_known, "{name}");
    }
    let store = variables.get("TOOLSCOUT_STORE").and_then(Value::as_str);
    let settings = StoreSettings {
        store: store.map(StoreAddress::new),
        ..StoreSettings::default()
    };
    settings.check().unwrap();
    assert_eq!(settings.store.unwrap().servers().unwrap().len(), 2);
}

#[test]
fn the_compose_file_starts_three_nodes() {
    let all = documents("deploy/compose.yaml");
    let services = &all[0]["services"];
    for node in ["node1", "node2", "node3"] {
        let service = &services[node];
        assert_understood(&service["command"]);
        assert_settings(&service["environment"]);
        assert_eq!(service["environment"]["TOOLSCOUT_NODE"], node);
    }
    // What a service names is there.
    let services = services.as_mapping().unwrap();
    for (name, service) in services {
        for (part, at) in [("configs", "source"), ("secrets", ""), ("volumes", "")] {
            for named in service[part].as_sequence().into_iter().flatten() {
                let text = named.as_str().or_else(|| named[at].as_str());
                let text = text.unwrap_or_else(|| panic!("{name:?}: {named:?}"));
                let wanted = text.split(':').next().unwrap();
                assert!(all[0][part].get(wanted).is_some(), "{name:?}: {wanted}");
            }
        }
    }
    assert!(Path::new(&fixture("deploy/Dockerfile")).exists());
}

#[test]
fn the_manifests_start_three_nodes() {
    let all = documents("deploy/kubernetes.yaml");
    let of_kind = |kind: &str| {
        let found = all.iter().find(|document| document["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}"))
    };
    for document in &all {
        assert_eq!(document["metadata"]["name"], "toolscout", "{document:?}");
    }
    assert_settings(&of_kind("ConfigMap")["data"]);
    let set = &of_kind("StatefulSet")["spec"];
    assert_eq!(set["replicas"], 3);
    let pod = &set["template"]["spec"];
    let container = &pod["containers"][0];
    assert_understood(&container["args"]);
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
        assert_eq!(container[probe]["httpGet"]["port"], "http");
    }
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let claims = set["volumeClaimTemplates"].as_sequence().unwrap();
    let claims = claims.iter().map(|claim| name(&claim["metadata"]));
    let volumes = pod["volumes"].as_sequence().unwrap().iter().map(name);
    let volumes: Vec<String> = claims.chain(volumes).collect();
    for mount in container["volumeMounts"].as_sequence().unwrap() {
        assert!(volumes.contains(&name(mount)), "{mount:?}");
    }
    let labels = &set["template"]["metadata"]["labels"];
    assert_eq!(&set["selector"]["matchLabels"], labels);
    assert_eq!(&of_kind("Service")["spec"]["selector"], labels);
    assert_eq!(
        &of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        labels
    );
}

#[test]
fn the_unit_of_systemd_starts_a_server() {
    let path = fixture("deploy/toolscout.service");
    let unit = std::fs::read_to_string(&path).unwrap();
    let values = |name: &str| -> Vec<&str> {
        let lines = unit.lines();
        lines
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .collect()
    };
    let started = values("ExecStart");
    let words = started[0].split(' ').skip(1);
    let words = words.map(Value::from).collect();
    assert_understood(&Value::Sequence(words));
    for variable in values("Environment")[0].split(' ') {
        let name = variable.split('=').next().unwrap();
        let known = [
            "HOME",
            "XDG_CONFIG_HOME",
            "TOOLSCOUT_DATA",
            "TOOLSCOUT_CACHE",
        ];
        assert!(known.contains(&name), "{name}");
    }
    // Its own check, where it is installed; it wants the program to be there.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("toolscout.service");
    let program = env!("CARGO_BIN_EXE_toolscout");
    std::fs::write(&copy, unit.replace("/usr/local/bin/toolscout", program)).unwrap();
    let mut check = Command::new("systemd-analyze");
    check.args(["verify", "--man=no"]).arg(&copy);
    match check.output() {
        Ok(checked) => {
            assert!(checked.status.success(), "{checked:?}");
            // Other units of the machine may be complained about.
            let said = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(!said.contains("toolscout.service"), "{said}");
        }
        Err(error) => eprintln!("systemd-analyze is not here ({error})"),
    }
}

#[test]
fn workflows_run_what_is_there() {
    for (file, commands) in [
        ("ci.yml", &[".ci/run"][..]),
        ("release.yml", &["scripts/release", "scripts/check_release"]),
    ] {
        let path = format!(".github/workflows/{file}");
        let workflow = &documents(&path)[0];
        let text = std::fs::read_to_string(fixture(&path)).unwrap();
        for command in commands {
            assert!(text.contains(command), "{file} does not run {command}");
            assert!(Path::new(&fixture(command)).exists(), "{command}");
        }
        for (name, job) in workflow["jobs"].as_mapping().unwrap() {
            assert!(job["runs-on"].is_string(), "{name:?}");
            assert!(job["steps"].is_sequence(), "{name:?}");
        }
    }
}

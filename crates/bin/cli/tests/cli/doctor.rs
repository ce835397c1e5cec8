//! Tests of `stentor doctor`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Scratch, ran, run, stentor};

#[test]
fn every_fabric_is_reported() {
    let document = run(["doctor", "--json"]).document("doctor");
    let fabrics = document["fabrics"].as_object().unwrap();
    assert_eq!(fabrics["sim"]["available"], true);
    assert_eq!(fabrics["roce"]["available"], true);
    let ofi = &fabrics["ofi"];
    // The presence of libfabric or a device depends on the machine.
    assert_eq!(ofi["available"] == true, ofi["path"].is_string(), "{ofi}");
    let why = ofi["why"].as_str().unwrap();
    assert!(why.starts_with(if ofi["available"] == true { "it would use " } else { "libfabric" }), "{why}");
    let verbs = &fabrics["verbs"];
    assert_eq!(verbs["available"] == true, verbs["path"].is_string(), "{verbs}");
    assert!(!verbs["why"].as_str().unwrap().is_empty());
    let whats: Vec<_> = document["findings"].as_array().unwrap().iter().map(|f| f["what"].as_str().unwrap()).collect();
    let always = whats.iter().position(|what| what.starts_with("RDMA device")).unwrap();
    // These findings exist on every machine. After them come the devices with their ports, or a finding that there are
    // none.
    assert_eq!(
        whats[..always],
        [
            "processors",
            "clock source",
            "anonymous shared memory",
            "seals on shared memory",
            "futex",
            "shared-memory process",
            "open files limit",
            "file sizes limit",
            "processes limit",
            "locked memory limit",
            "huge pages",
            "container limits",
            "libibverbs",
            "RDMA modules",
        ]
    );
}

#[test]
fn every_problem_has_a_remedy() {
    let document = run(["doctor", "--json"]).document("doctor");
    for finding in document["findings"].as_array().unwrap() {
        assert_eq!(finding["state"] == "ok", finding["remedy"].is_null(), "{finding}");
    }
}

#[test]
fn runtime_directory_open_to_others_makes_shm_unavailable() {
    let scratch = Scratch::new();
    let directory = scratch.path("stentor");
    fs::create_dir(&directory).unwrap();
    let doctor = |mode| {
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        ran(&stentor().args(["doctor", "--json"]).env("XDG_RUNTIME_DIR", scratch.path("")).output().unwrap())
    };
    let open = doctor(0o755);
    assert_eq!(open.code, 1);
    let document = open.document("doctor");
    assert_eq!(document["fabrics"]["shm"]["available"], false);
    assert!(document["fabrics"]["shm"]["why"].as_str().unwrap().contains("0755"));
    let closed = doctor(0o700);
    assert_eq!(closed.code, 0, "{}", closed.stdout);
    let path = &closed.document("doctor")["fabrics"]["shm"]["path"];
    assert!(path.as_str().unwrap().contains(directory.to_str().unwrap()), "{path}");
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 0, "doctor leaves nothing behind");
}

#[test]
fn a_low_limit_of_open_files_is_found() {
    let command = format!("ulimit -n 256; exec {} doctor --json", env!("CARGO_BIN_EXE_stentor"));
    let document =
        ran(&std::process::Command::new("/bin/sh").args(["-c", &command]).output().unwrap()).document("doctor");
    let finding = document["findings"].as_array().unwrap().iter().find(|f| f["what"] == "open files limit").unwrap();
    assert_eq!(finding["state"], "limited");
    assert!(finding["detail"].as_str().unwrap().starts_with("256"));
    assert!(finding["remedy"].as_str().unwrap().contains("ulimit -n 1024"));
}

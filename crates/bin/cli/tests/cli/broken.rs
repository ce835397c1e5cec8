//! Broken clusters, one of each kind. The output of the commands names the cause and a remedy, and with that remedy the
//! cluster works again. Operators practise on the same clusters: `crates/bin/cli/tests/broken/broken.sh`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Ran, Scratch, ran};

/// A running cluster that is broken.
struct Broken(Scratch);

impl Broken {
    fn make(name: &str) -> Broken {
        let broken = Broken(Scratch::new());
        let made = broken.script(&["create", name]);
        assert_eq!(made.code, 0, "{}{}", made.stdout, made.stderr);
        broken
    }

    fn script(&self, words: &[&str]) -> Ran {
        self.patient_script("3", words)
    }

    /// Runs the script. Its command `judge` gives up after `patience` seconds.
    fn patient_script(&self, patience: &str, words: &[&str]) -> Ran {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken/broken.sh");
        let mut command = Command::new(script);
        command
            .args(words)
            .arg(self.0.path("cluster"))
            .env("STENTOR", env!("CARGO_BIN_EXE_stentor"))
            .env("PATIENCE", patience);
        // Members outlive the script and would hold its pipes open, so its output goes into files.
        let out = |end: &str| fs::File::create(self.0.path(end)).expect("a file for what the script prints");
        let status = command.stdout(out("out")).stderr(out("err")).status().expect("bash runs");
        let read = |end: &str| fs::read(self.0.path(end)).expect("the output of the script is readable");
        ran(&std::process::Output { status, stdout: read("out"), stderr: read("err") })
    }

    /// Returns the output of the last judgement and of the members so far.
    fn printed(&self) -> String {
        let files =
            fs::read_dir(self.0.path("cluster")).expect("the cluster's directory").map(|entry| entry.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|end| end == "err"));
        let all = [self.0.path("out"), self.0.path("err")].into_iter().chain(logs);
        all.map(|path| fs::read_to_string(path).expect("the file is readable text")).collect()
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.script(&["end"]);
    }
}

/// Checks that a broken cluster does not work, that the output of the commands contains these words, and that the
/// cluster works once it is mended.
fn is_told_and_mended(name: &str, words: &[&str]) {
    let broken = Broken::make(name);
    let judged = broken.script(&["judge"]);
    let said = broken.printed();
    assert_ne!(judged.code, 0, "the cluster is not broken: {said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in the output: {said}");
    }
    let mended = broken.script(&["mend"]);
    assert_eq!(mended.code, 0, "{}{}", mended.stdout, mended.stderr);
    let judged = broken.patient_script("20", &["judge"]);
    assert_eq!(judged.code, 0, "the cluster does not work: {}", broken.printed());
}

macro_rules! broken {
    ($($test:ident: $name:literal, $words:expr;)*) => {
        $(
            #[test]
            #[ignore = "half a minute: cargo xtask test --only operators"]
            fn $test() {
                is_told_and_mended($name, &$words);
            }
        )*

        #[test]
        fn every_broken_cluster_is_tried() {
            let scratch = Scratch::new();
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken/broken.sh");
            let listed = ran(&Command::new(script).arg("list").current_dir(scratch.path("")).output().expect("bash runs"));
            assert_eq!(listed.stdout.lines().collect::<Vec<_>>(), [$($name),*]);
        }
    };
}

broken! {
    lost_majority: "lost-majority", ["g1 has lost its majority: 1 of its 3 members are there", "g1.2 is down, g1.3 is down"];
    stopped_majority: "stopped-majority", ["g1.1 does not answer", "g1.2 does not answer"];
    wrong_key: "wrong-key", ["g1.3", "another key"];
    other_configuration: "other-configuration", ["g1.3", "some of these settings differ", "`stentor config check` prints the fingerprint on each host"];
    unresolved_name: "unresolved-name", ["member3.cluster.invalid", "mend the name on every host (/etc/hosts, DNS)"];
    port_taken: "port-taken", ["is used by another program", "ss -ltnp"];
    file_limit: "file-limit", ["ulimit -n"];
    missing_history: "missing-history", ["cannot be judged", "a history of `c0` is missing"];
    wrong_directory: "wrong-directory", ["cluster/run)", "cluster/run-by-hand)"];
    other_group_gone: "other-group-gone", ["g2 has lost its majority: 1 of its 3 members are there"];
}

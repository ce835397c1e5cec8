//! The bindings to rdma-core and libfabric. The committed bindings were generated from the headers. This module
//! generates them again, and compares both versions.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::cargo::{Context, run};
use crate::needs::Needs;
use crate::step::Outcome;

/// The bindings of one library.
struct Library {
    /// The library's name in the generator.
    name: &'static str,
    /// The committed file.
    file: &'static str,
    package_config: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        name: "rdma-core",
        file: "crates/fabric/ibverbs-sys/src/bindings.rs",
        package_config: "pkgconfig/libibverbs.pc",
    },
    Library {
        name: "libfabric",
        file: "crates/fabric/libfabric-sys/src/bindings.rs",
        package_config: "pkgconfig/libfabric.pc",
    },
];

/// The headers that the generator needs, and the library that reads them.
pub(crate) const NEEDS: Needs = Needs {
    things: &["infiniband/verbs.h", "rdma/fi_domain.h", "libclang", "stdio.h"],
    sources: &["xtask/src/bindings.rs", "xtask/src/bin/bindings.rs"],
};
/// The arguments that build the generator. The generator is a separate program, because its dependencies take longer to
/// build than all of `xtask`.
const GENERATOR: [&str; 6] = ["-p", "xtask", "--features", "bindings", "--bin", "bindings"];

/// Generates the bindings and compares them with the committed ones.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    run(context.cargo(["clippy"]).args(GENERATOR).args(["--", "-D", "warnings"]))?;
    for library in &LIBRARIES {
        let fresh = std::env::temp_dir().join(format!("stentor-bindings-{}.rs", std::process::id()));
        let generated = generate(context, library, &fresh);
        let text = generated.and_then(|()| Ok(fs::read_to_string(&fresh)?));
        let _ = fs::remove_file(&fresh);
        let file = library.file;
        let committed = fs::read_to_string(context.root.join(file)).with_context(|| format!("cannot read {file}"))?;
        compare(library, &committed, &text?)?;
        println!("{file} matches {} {}", library.name, library.version());
    }
    Ok(Outcome::Passed)
}

/// Generates the bindings and writes them to the committed files.
pub(crate) fn write(context: &Context) -> Result<()> {
    for library in &LIBRARIES {
        generate(context, library, &context.root.join(library.file))?;
        println!("{} was written from {} {}", library.file, library.name, library.version());
    }
    Ok(())
}

fn generate(context: &Context, library: &Library, file: &Path) -> Result<()> {
    NEEDS.ensure()?;
    run(context.cargo(["run", "--quiet"]).args(GENERATOR).args(["--", library.name]).arg(file))
}

impl Library {
    /// Returns the release of the installed headers, according to the library's pkg-config file.
    fn version(&self) -> String {
        let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let folders = [&triplet, "/usr/lib64", "/usr/lib"];
        let texts = folders.map(|folder| fs::read_to_string(Path::new(folder).join(self.package_config)));
        let line = texts.into_iter().flatten().find_map(|text| {
            text.lines().find_map(|line| line.strip_prefix("Version:").map(|version| version.trim().to_owned()))
        });
        line.unwrap_or_else(|| "of unknown version".to_owned())
    }
}

fn compare(library: &Library, committed: &str, generated: &str) -> Result<()> {
    let (mut ours, mut theirs) = (committed.lines(), generated.lines());
    let mut line = 0;
    loop {
        line += 1;
        match (ours.next(), theirs.next()) {
            (None, None) => return Ok(()),
            (a, b) if a == b => {}
            (a, b) => bail!(
                "{}:{line}: `{}`, but the headers of {} {} yield `{}`: run `cargo xtask bindings` and check the difference",
                library.file,
                a.unwrap_or_default(),
                library.name,
                library.version(),
                b.unwrap_or_default()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_differs_is_named() {
        let library = &LIBRARIES[1];
        assert!(compare(library, "a\nb\n", "a\nb\n").is_ok());
        for other in ["a\nc\n", "a\n", "a\nb\nc\n"] {
            let error = compare(library, "a\nb\n", other).unwrap_err().to_string();
            assert!(
                error.starts_with("crates/fabric/libfabric-sys/src/bindings.rs:")
                    && error.contains("cargo xtask bindings"),
                "{error}"
            );
        }
    }
}

//! A library with the soname of the real libibverbs, whose functions call functions of this process.
//!
//! If a library with a requested soname is already loaded, the loader returns it. The crate under test therefore
//! obtains this library under the usual name, and the real one need not be installed. The Rust compiler of the tests
//! also compiles the library.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Compiles and loads a library with this soname and these functions. It stays loaded. Each function has at most six
/// arguments, and arguments and results are numbers or pointers.
pub(crate) fn load(soname: &str, functions: &[(&str, *const c_void)]) {
    let count = functions.len();
    let mut source = format!(
        "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! {{ loop {{}} }}\n\
         type F = extern \"C\" fn(usize, usize, usize, usize, usize, usize) -> usize;\n\
         #[unsafe(no_mangle)]\npub static mut TABLE: [Option<F>; {count}] = [None; {count}];\n"
    );
    for (at, (name, _)) in functions.iter().enumerate() {
        writeln!(
            source,
            "#[unsafe(no_mangle)]\npub extern \"C\" fn {name}(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) \
             -> usize {{\n    match unsafe {{ TABLE[{at}] }} {{ Some(go) => go(a, b, c, d, e, f), None => 0 }}\n}}"
        )
        .unwrap();
    }
    let folder = std::env::temp_dir().join(format!("stentor-shim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = compile(&folder, soname, &source);
    // SAFETY: the library has no initialisers.
    let loaded = unsafe { Library::open(Some(&library), RTLD_NOW | RTLD_LOCAL) }.unwrap();
    // SAFETY: the library defines this table with `count` pointers.
    let table = unsafe { loaded.get::<*mut *const c_void>(b"TABLE\0") }.unwrap();
    for (at, (_, function)) in functions.iter().enumerate() {
        // SAFETY: the index is inside the table, which nothing reads yet.
        unsafe { (*table).add(at).write(*function) };
    }
    // The library must stay loaded, because the crate under test requests its soname.
    std::mem::forget(loaded);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn compile(folder: &Path, soname: &str, source: &str) -> std::path::PathBuf {
    let (text, library) = (folder.join("shim.rs"), folder.join(soname));
    std::fs::write(&text, source).unwrap();
    let mut compile = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compile.args(["--edition", "2024", "--crate-type", "cdylib", "-C", "panic=abort", "-C", "opt-level=1"]);
    compile.arg("-C").arg(format!("link-arg=-Wl,-soname,{soname}")).arg("-o").arg(&library).arg(&text);
    let output = compile.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

//! Where libhawser is: in the folder that HAWSER_LIB_DIR names, or else where pkg-config says.

fn main() {
    println!("cargo:rerun-if-env-changed=HAWSER_LIB_DIR");
    if let Ok(folder) = std::env::var("HAWSER_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib=dylib=hawser");
    } else if let Err(problem) = pkg_config::probe_library("hawser") {
        panic!("{problem}\nInstall libhawser, or name the folder of libhawser.so in HAWSER_LIB_DIR.");
    }
}

//! Wrong calls of every function, through the declarations of this crate: each gives the code that abi/vectors says, as in
//! every other binding.

mod arguments;
#[rustfmt::skip]
mod calls;
mod world;

use arguments::{Arguments, STRAYS};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::Ordering;

fn load(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../abi").join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn code_of(abi: &Value, name: &str) -> i32 {
    let errors = abi["errors"].as_array().unwrap();
    let found = errors.iter().find(|e| e["name"] == name).unwrap();
    found["code"].as_i64().unwrap() as i32
}

/// What is wrong with a call's result; nothing if it went as the vector says.
fn complaint(vector: &Value, expected: i32, got: i32) -> Option<String> {
    let name = &vector["name"];
    if got != expected {
        return Some(format!("{name}: {got}, not {expected}"));
    }
    let (code, text) = world::last_error();
    let is_quiet = vector["quiet"] == true;
    (!is_quiet && (code != expected || text.is_empty()))
        .then(|| format!("{name}: the last error is {code} \"{text}\""))
}

#[test]
fn every_vector_gives_the_documented_code() {
    let abi = load("abi.json");
    let ids = world::open();
    let mut wrong = Vec::new();
    for file in ["ids", "pointers", "sizes"] {
        let document = load(&format!("vectors/{file}.json"));
        let vectors = document["vectors"].as_array().unwrap();
        for vector in vectors {
            let args = Arguments::new(vector, &ids, &abi);
            // SAFETY: the vectors are made from the description that the declarations are made from.
            let got = unsafe { calls::call(vector["function"].as_str().unwrap(), &args) };
            let expected = code_of(&abi, vector["expect"].as_str().unwrap());
            wrong.extend(complaint(vector, expected, got));
        }
        println!("{file}: {} vectors called", vectors.len());
        assert!(vectors.len() > 30);
    }
    assert!(wrong.is_empty(), "{} calls went wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(STRAYS.load(Ordering::Relaxed), 0, "a callback of a refused call was called");
    world::close(ids["context"]);
}

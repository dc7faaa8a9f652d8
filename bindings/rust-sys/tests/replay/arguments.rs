//! The arguments of one call, made as a vector says.

use crate::world::Ids;
use serde_json::Value;
use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls of callbacks that must not be called.
pub static STRAYS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn stray() {
    STRAYS.fetch_add(1, Ordering::Relaxed);
}

/// One machine word for each parameter; what the words point to lives as long as this.
#[derive(Default)]
pub struct Arguments {
    words: Vec<u64>,
    memory: Vec<Box<[u64; 512]>>,
    texts: Vec<CString>,
}

impl Arguments {
    pub fn new(vector: &Value, ids: &Ids, abi: &Value) -> Self {
        let mut made = Self::default();
        for given in vector["args"].as_array().unwrap() {
            let word = made.word(given, ids, abi);
            made.words.push(word);
        }
        made
    }

    /// The argument at a place, as the type of the parameter.
    ///
    /// # Safety
    /// The vector must give that parameter a value of its type.
    pub unsafe fn get<T: Copy>(&self, at: usize) -> T {
        const { assert!(size_of::<T>() <= size_of::<u64>() && cfg!(target_endian = "little")) };
        std::ptr::from_ref(&self.words[at]).cast::<T>().read()
    }

    fn word(&mut self, given: &Value, ids: &Ids, abi: &Value) -> u64 {
        // "size" and "count" tell more of what another key names.
        let mut keys = given.as_object().unwrap().iter();
        let (key, value) = keys.find(|(key, _)| !matches!(key.as_str(), "size" | "count")).unwrap();
        match key.as_str() {
            "id" => ids[value.as_str().unwrap()],
            "number" => value.as_u64().unwrap(),
            "text" => {
                self.texts.push(CString::new(value.as_str().unwrap()).unwrap());
                self.texts.last().unwrap().as_ptr() as u64
            }
            "options" | "info" => {
                let size = size_of_struct(abi, value.as_str().unwrap());
                self.sized(size, given["size"].as_str().unwrap())
            }
            "memory" | "fill" | "records" | "ids" => self.room() as u64,
            "callback" => stray as *const () as u64,
            "null" | "user" => 0,
            other => panic!("no way to make an argument of {other}"),
        }
    }

    fn room(&mut self) -> *mut u64 {
        self.memory.push(Box::new([0; 512]));
        self.memory.last_mut().unwrap().as_mut_ptr()
    }

    /// A structure of zeros whose size is right, or wrong in one of the ways of the vectors.
    fn sized(&mut self, size: usize, how: &str) -> u64 {
        let room = self.room().cast::<u8>();
        let given = match how {
            "known" => size,
            "zero" => 0,
            "huge" => 65537,
            "tail" => size + 8,
            other => panic!("no size is {other}"),
        };
        assert!(size + 8 <= 4096);
        // SAFETY: within the room, which is aligned for a word.
        unsafe {
            room.add(size + 7).write(u8::from(how == "tail"));
            room.cast::<u32>().write(given as u32);
        }
        room as u64
    }
}

fn size_of_struct(abi: &Value, name: &str) -> usize {
    let structs = abi["structs"].as_array().unwrap();
    let found = structs.iter().find(|s| s["name"] == name).unwrap();
    found["size"].as_u64().unwrap() as usize
}

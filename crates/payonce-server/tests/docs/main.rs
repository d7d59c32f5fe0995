//! The documentation does what it says.
//!
//! Every fenced block has an info string that says what it is, and an unknown one is a failure. Blocks in a
//! shell are run with the built `payonce`, configurations pass the real reader, answers are compared with
//! the gateway's, receivers get signed, repeated and forged deliveries. Tables are held against the enums
//! of the code, and the Chinese pages against the English ones.
//!
//! Not here: prose. Whether a sentence is true is for the reader of the pull request to see.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stderr, reason = "what the commands of a failed page said")]

mod blocks;
#[path = "../databases/mod.rs"]
mod databases;
mod languages;
mod stage;
mod tables;

use blocks::Page;

/// The pages whose blocks are run, each in a folder and a gateway of its own. A Chinese page has the same
/// blocks (`languages`), so it is not run again.
#[test]
fn every_block_does_what_it_says() {
    let pages: Vec<Page> = blocks::english().into_iter().filter(|page| !page.steps.is_empty()).collect();
    assert!(pages.len() > 5, "the pages are gone");
    let failed: Vec<String> = std::thread::scope(|scope| {
        let playing: Vec<_> = pages.iter().map(|page| (page, scope.spawn(|| stage::Stage::new(page).play()))).collect();
        playing.into_iter().filter_map(|(page, thread)| thread.join().err().map(|_| page.path.clone())).collect()
    });
    assert!(failed.is_empty(), "the panics above are from {}", failed.join(", "));
}

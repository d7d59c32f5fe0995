//! The table of rules.
//!
//! Here: each rule with the reason that is printed when it is broken, and the lists of exceptions, each with
//! a reason too. `tests.rs` beside holds for each a sample that must break it. Not here: how files are read.

use std::collections::BTreeSet;

use super::{File, Finding, Tree, source::words};

mod mysql8;
#[cfg(test)]
mod tests;

/// One rule of the house.
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) why: &'static str,
    pub(super) check: fn(&Tree) -> Vec<Finding>,
}

const LONGEST_FUNCTION: usize = 70;
const LONGEST_TEST: usize = 120;
const LONGEST_FILE: usize = 600;

/// Files over the limit that are better whole. An entry that is no longer needed is a finding.
const LONG_FILES: [(&str, &str); 1] = [(
    "crates/payonce-channels/tests/it/wechat.rs",
    "the field cases of one channel by their ids, to be looked up in one place",
)];
/// Below this an entry in `LONG_FILES` is no longer needed.
const SHORT_AGAIN: usize = 500;

pub(super) static RULES: [Rule; 19] = [
    Rule {
        name: "the centre names no platform",
        why: "channels read, the centre decides: what apply does may not depend on who told us",
        check: |tree| {
            let centre = tree.files.iter().filter(|file| file.is_in("crates/payonce/src/") && !file.is_test());
            centre.flat_map(|file| any_case(file, &["wechat", "alipay"], |line| file.source().is_test(line))).collect()
        },
    },
    Rule {
        name: "channels are pure",
        why: "bytes, keys and a clock reading in, a belief out: so it can be fuzzed, replayed and embedded anywhere",
        check: |tree| {
            let forbidden = [
                "async",
                "sqlx",
                "tokio",
                "SystemTime::now",
                "Instant::now",
                "Micros::now",
                "Timestamp::now",
                "std::net",
            ];
            code_words(tree, |file| file.is_in("crates/payonce-channels/src/"), &forbidden)
        },
    },
    Rule {
        name: "the examiner shares nothing with the examined",
        why: "if payonce-sim used our code, both could be wrong alike, and every test would pass",
        check: sim_manifest,
    },
    Rule {
        name: "keys are claimed in apply.rs",
        why: "idempotency has one home; a second caller is a second rule about what has happened already",
        check: claims,
    },
    Rule {
        name: "SQL lives in the stores",
        why: "what every engine must do is defined once, by the seam and its exercises",
        check: |tree| {
            let outside = |file: &&File| {
                file.is_in("crates/")
                    && file.path.contains("/src/")
                    && !file.is_in("crates/payonce/src/store/")
                    // The user's part: a stock table, a race without payonce, and counting from outside.
                    && !file.is_in("crates/payonce-server/src/demo/")
            };
            tree.rust().filter(outside).flat_map(|file| strings(file, "SQL", is_sql)).collect()
        },
    },
    Rule {
        name: "conflict handling stands once per store",
        why: "a duplicate key is an answer, not a nuisance: whoever swallows one hides a second payment. One place \
              (the holds, which are keyed by what they say) may count instead",
        check: conflicts,
    },
    Rule {
        name: "statuses are chosen at the edge",
        why: "what a failure means to the caller is said in one file: server error.rs and http/, channel reply.rs",
        check: statuses,
    },
    Rule {
        name: "files say what lives here",
        why: "whoever looks for something reads three lines and knows whether to read on",
        check: headers,
    },
    Rule {
        name: "a function fits a screen",
        why: "70 lines (tests 120): what does not fit is two things",
        check: |tree| tree.rust().flat_map(long_functions).collect(),
    },
    Rule { name: "a file fits a mind", why: "600 lines, or an entry with the reason in LONG_FILES", check: long_files },
    Rule {
        name: "docs come in two languages",
        why: "docs/en and docs/zh hold the same file names, so that nobody reads half of it",
        check: docs,
    },
    Rule {
        name: "every code is explained",
        why: "whoever meets a code in a log or an answer looks it up: `code`, in both languages",
        check: codes,
    },
    Rule {
        name: "migrations are equal on every engine",
        why: "same numbers and names, without gaps: a schema version means one thing everywhere",
        check: migrations,
    },
    Rule {
        name: "MySQL 8 would understand it",
        why: "no MySQL 8 runs in the tests; what its manual says it refuses, or treats otherwise than MariaDB, is a list",
        check: mysql8::check,
    },
    Rule {
        name: "library code does not unwrap",
        why: "a panic in an embedder's process is theirs to explain; errors are values",
        check: |tree| {
            let library = |file: &File| {
                let crates = ["crates/payonce/src/", "crates/payonce-channels/src/", "crates/payonce-sim/src/"];
                crates.iter().any(|folder| file.is_in(folder)) && !file.is_test()
            };
            code_words(tree, library, &[".unwrap()", ".expect("])
        },
    },
    Rule {
        name: "nothing is left to do in the tree",
        why: "a marker in the code is read by nobody; an issue is",
        check: |tree| {
            let marks: Vec<String> = [("TO", "DO"), ("FIX", "ME"), ("XX", "X")].map(joined).into();
            let check = |file: &File| -> Vec<Finding> {
                let found = marks.iter().flat_map(|mark| words(&file.text, mark).map(|at| file.at(at, mark.as_str())));
                found.collect()
            };
            tree.files.iter().filter(|file| file.path != "Cargo.lock").flat_map(check).collect()
        },
    },
    Rule {
        name: "the tree knows no machine",
        why: "it is built and read elsewhere: no paths, registries or tools of the place where it was written",
        check: machines,
    },
    Rule {
        name: "one crypto library",
        why: "two TLS providers in one program panic at run time; and these have had advisories or need system libraries",
        check: packages,
    },
    Rule {
        name: "only crates.io",
        why: "whoever builds this has no access to another registry, and nobody reviewed one",
        check: |tree| {
            let Some(lock) = tree.file("Cargo.lock") else { return Vec::new() };
            let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
            let sources = lock.text.lines().filter(|line| line.starts_with("source = ") && *line != public);
            sources.map(|line| lock.whole(line)).collect()
        },
    },
];

/// Written in two halves, so that this file may be searched as well.
fn joined((first, second): (&str, &str)) -> String {
    format!("{first}{second}")
}

/// Texts in any letter case, anywhere in the file but in lines that `skip` names.
fn any_case(file: &File, texts: &[&str], skip: impl Fn(usize) -> bool) -> Vec<Finding> {
    let lower = file.text.to_ascii_lowercase();
    let found = texts.iter().flat_map(|text| lower.match_indices(text).map(|(at, _)| file.at(at, *text)));
    found.filter(|finding| !skip(finding.line - 1)).collect()
}

/// Whole words in code (not in comments, strings or tests) of the chosen files.
fn code_words(tree: &Tree, which: impl Fn(&File) -> bool, forbidden: &[&str]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust().filter(|file| which(file)) {
        for word in forbidden {
            found.extend(words(&file.source().code, word).map(|at| file.at(at, *word)));
        }
        found.retain(|finding| finding.path != file.path || !file.source().is_test(finding.line - 1));
    }
    found
}

/// String literals outside tests about which `is_bad`.
fn strings(file: &File, what: &str, is_bad: fn(&str) -> bool) -> Vec<Finding> {
    if file.is_test() {
        return Vec::new();
    }
    let source = file.source();
    let bad = source.strings.iter().filter(|(line, text)| !source.is_test(*line) && is_bad(text));
    bad.map(|(line, _)| Finding { path: file.path.clone(), line: line + 1, what: what.to_owned() }).collect()
}

fn is_sql(text: &str) -> bool {
    let select = words(text, "SELECT").next();
    let reads = select.is_some_and(|at| words(&text[at..], "FROM").next().is_some());
    reads || ["INSERT INTO ", "INSERT OR ", "UPDATE payonce_", "DELETE FROM "].iter().any(|start| text.contains(start))
}

fn sim_manifest(tree: &Tree) -> Vec<Finding> {
    let Some(manifest) = tree.file("crates/payonce-sim/Cargo.toml") else { return Vec::new() };
    let mut is_dependencies = false;
    let mut found = Vec::new();
    for (line, text) in manifest.text.lines().enumerate() {
        if let Some(section) = text.strip_prefix('[') {
            is_dependencies = section.contains("dependencies");
            // `[dependencies.payonce]`
            if !section.contains("dependencies.payonce") {
                continue;
            }
        }
        let names_us = text.starts_with("payonce")
            || text.contains("dependencies.payonce")
            || text.contains("package = \"payonce");
        if is_dependencies && names_us {
            found.push(Finding { path: manifest.path.clone(), line: line + 1, what: text.to_owned() });
        }
    }
    found
}

/// The seam defines it, stores implement it, apply.rs calls it, nobody else.
fn claims(tree: &Tree) -> Vec<Finding> {
    const HOME: &str = "crates/payonce/src/apply.rs";
    let knows = |file: &File| {
        !file.is_in("crates/")
            || file.is_test()
            || file.path == HOME
            || file.path == "crates/payonce/src/store.rs"
            || file.is_in("crates/payonce/src/store/")
    };
    let mut found = code_words(tree, |file| !knows(file), &["book_entries"]);
    if let Some(home) = tree.file(HOME) {
        match words(&home.source().code, "book_entries").count() {
            1 => {}
            count => found.push(home.whole(format!("{count} calls of book_entries instead of one"))),
        }
    }
    found
}

fn conflicts(tree: &Tree) -> Vec<Finding> {
    let marks =
        ["ON CONFLICT", "ON DUPLICATE KEY", "INSERT IGNORE", "INSERT OR IGNORE", "INSERT OR REPLACE", "REPLACE INTO"];
    let mut found = Vec::new();
    for file in tree.rust().filter(|file| file.is_in("crates/payonce/src/") && !file.is_test()) {
        let allowed = usize::from(file.is_in("crates/payonce/src/store/"));
        let source = file.source();
        let outside_tests = source.strings.iter().filter(|(line, _)| !source.is_test(*line));
        let hits = outside_tests.flat_map(|(line, text)| {
            marks.iter().flat_map(move |mark| {
                text.match_indices(mark).map(move |(at, _)| (line + text[..at].matches('\n').count(), *mark))
            })
        });
        let more = hits.skip(allowed).map(|(line, mark)| Finding {
            path: file.path.clone(),
            line: line + 1,
            what: mark.into(),
        });
        found.extend(more);
    }
    found
}

/// `StatusCode::…` and numbers beside the word status. Ranges only read a status, they do not choose one.
fn statuses(tree: &Tree) -> Vec<Finding> {
    const NUMBERS: [&str; 17] = [
        "200", "201", "202", "204", "400", "401", "403", "404", "405", "408", "409", "413", "415", "422", "429", "500",
        "503",
    ];
    let speaks_http = |file: &File| {
        !file.is_in("crates/")
            || !file.path.contains("/src/")
            || file.is_test()
            // The other side speaks HTTP itself, and judges what it gets.
            || file.is_in("crates/payonce-sim/")
            || file.path == "crates/payonce-server/src/error.rs"
            || file.path == "crates/payonce-server/src/http.rs"
            || file.is_in("crates/payonce-server/src/http/")
            || file.is_in("crates/payonce-channels/") && file.path.ends_with("/reply.rs")
    };
    let mut found = code_words(tree, |file| !speaks_http(file), &["StatusCode::"]);
    for file in tree.rust().filter(|file| !speaks_http(file)) {
        for (line, text) in file.source().code.lines().enumerate() {
            let chosen = NUMBERS.iter().find(|number| {
                words(text, number).any(|at| !text[at + 3..].starts_with("..") && !text[..at].ends_with(".."))
            });
            if let Some(number) = chosen
                && text.to_ascii_lowercase().contains("status")
                && !file.source().is_test(line)
            {
                found.push(Finding { path: file.path.clone(), line: line + 1, what: format!("status {number}") });
            }
        }
    }
    found
}

fn headers(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let header: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        let text = header.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        // A crate's front page tells its story in its own way.
        let is_part =
            file.path.contains("/src/") && !file.path.ends_with("/lib.rs") && !file.path.ends_with("/tests.rs");
        let is_long = is_part && file.text.lines().count() >= 30;
        if text.len() < 10 {
            found.push(file.whole("opens without a `//!` header that says what lives here"));
        } else if is_long && !(text.contains("Here:") && text.contains("Not here:")) {
            found.push(file.whole("its header has no `Here:` and `Not here:`"));
        }
    }
    found
}

fn long_functions(file: &File) -> Vec<Finding> {
    let source = file.source();
    let limit = |line| if file.is_test() || source.is_test(line) { LONGEST_TEST } else { LONGEST_FUNCTION };
    let long = source.functions().into_iter().filter(|function| function.lines > limit(function.first_line));
    long.map(|function| Finding {
        path: file.path.clone(),
        line: function.first_line + 1,
        what: format!("fn {} has {} lines", function.name, function.lines),
    })
    .collect()
}

fn long_files(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        let allowed = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        if lines > LONGEST_FILE && !allowed {
            found.push(file.whole(format!("{lines} lines")));
        } else if lines < SHORT_AGAIN && allowed {
            found.push(file.whole("no longer long: take it out of LONG_FILES"));
        }
    }
    found
}

fn docs(tree: &Tree) -> Vec<Finding> {
    let names = |folder: &str| -> BTreeSet<String> {
        tree.files.iter().filter_map(|file| file.path.strip_prefix(folder)).map(str::to_owned).collect()
    };
    let (en, zh) = (names("docs/en/"), names("docs/zh/"));
    let missing = |have: &BTreeSet<String>, other: &BTreeSet<String>, folder: &str| -> Vec<Finding> {
        let gone = have.difference(other);
        gone.map(|name| Finding { path: format!("{folder}{name}"), line: 0, what: "is missing".into() }).collect()
    };
    [missing(&en, &zh, "docs/zh/"), missing(&zh, &en, "docs/en/")].concat()
}

/// What operators and callers meet: reasons, outcomes, refusals, errors.
const CODES: [&str; 4] = [
    "crates/payonce/src/channel.rs",
    "crates/payonce/src/outcome.rs",
    "crates/payonce/src/register.rs",
    "crates/payonce-server/src/error.rs",
];

/// Codes are the words in lines like `Self::Late => "late",`.
fn codes(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for language in ["docs/en/", "docs/zh/"] {
        let pages: Vec<&File> = tree.files.iter().filter(|file| file.is_in(language)).collect();
        for file in CODES.iter().filter_map(|path| tree.file(path)).filter(|_| !pages.is_empty()) {
            for (line, text) in file.text.lines().enumerate().filter(|(line, _)| !file.source().is_test(*line)) {
                let Some((_, code)) = text.trim_end_matches("\",").rsplit_once(" => \"") else { continue };
                let is_code = code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                if is_code && !pages.iter().any(|page| page.text.contains(&format!("`{code}`"))) {
                    let what = format!("`{code}` is nowhere in {language}");
                    found.push(Finding { path: file.path.clone(), line: line + 1, what });
                }
            }
        }
    }
    found
}

/// `crates/payonce/migrations/<engine>/<number>_<name>.sql`
fn migrations(tree: &Tree) -> Vec<Finding> {
    const HOME: &str = "crates/payonce/migrations/";
    let files: Vec<(&str, &str)> =
        tree.files.iter().filter_map(|file| file.path.strip_prefix(HOME)?.split_once('/')).collect();
    let engines: BTreeSet<&str> = files.iter().map(|(engine, _)| *engine).collect();
    let names: BTreeSet<&str> = files.iter().map(|(_, name)| *name).collect();
    let finding = |path: String, what: &str| Finding { path, line: 0, what: what.into() };
    let mut found = Vec::new();
    for engine in &engines {
        let gone = names.iter().filter(|name| !files.contains(&(engine, name)));
        found.extend(gone.map(|name| finding(format!("{HOME}{engine}/{name}"), "is missing; another engine has it")));
    }
    for (index, name) in names.iter().enumerate() {
        let number = format!("{:04}_", index + 1);
        if !(name.starts_with(&number) && name.ends_with(".sql")) {
            found.push(finding(format!("{HOME}*/{name}"), &format!("should be {number}….sql")));
        }
    }
    for file in tree.rust().filter(|file| file.is_in("crates/payonce/src/")) {
        let named = file.source().strings.iter().filter_map(|(_, text)| text.split_once("migrations/"));
        let gone = named.filter(|(_, path)| {
            let path = path.trim_end_matches('/');
            let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
            is_plain
                && !path.is_empty()
                && !tree.files.iter().any(|file| file.path.starts_with(&format!("{HOME}{path}")))
        });
        found.extend(gone.map(|(_, path)| file.whole(format!("names migrations/{path}, which does not exist"))));
    }
    found
}

fn machines(tree: &Tree) -> Vec<Finding> {
    let paths = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")].map(joined);
    let names = [("clau", "de"), ("anthro", "pic"), ("chat", "gpt"), ("sub", "agent"), ("find_", "string")].map(joined);
    let registries =
        [("index-", "url"), ("extra-index-", "url"), ("replace-", "with"), ("artifact", "ory")].map(joined);
    let all: Vec<&str> = paths.iter().chain(&names).chain(&registries).map(String::as_str).collect();
    tree.files.iter().flat_map(|file| any_case(file, &all, |_| false)).collect()
}

fn packages(tree: &Tree) -> Vec<Finding> {
    const BUILT: [&str; 5] = ["openssl-sys", "native-tls", "chrono", "ring", "rsa"];
    let built = BUILT.iter().filter(|name| tree.packages.iter().any(|package| package == *name));
    let mut found: Vec<Finding> = built
        .map(|name| Finding { path: "cargo tree".into(), line: 0, what: format!("{name}: see `cargo tree -i {name}`") })
        .collect();
    // A lock file may name packages of features nobody turns on; these three not even so.
    if let Some(lock) = tree.file("Cargo.lock") {
        let locked =
            BUILT[..3].iter().filter_map(|name| lock.text.find(&format!("\nname = \"{name}\"\n")).map(|at| (at, name)));
        found.extend(locked.map(|(at, name)| lock.at(at + 1, *name)));
    }
    found
}

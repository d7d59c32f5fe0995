//! For every rule a small tree that breaks it and one that does not: rules that cannot fail are worthless.

use super::*;

/// The findings of one rule in a tree of these files.
fn check(rule: &str, files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(path, text)| File::new(*path, *text)).collect();
    check_tree(rule, &Tree { files, packages: Vec::new() })
}

fn check_tree(rule: &str, tree: &Tree) -> Vec<String> {
    let rule = RULES.iter().find(|have| have.name == rule).expect("a rule of this name");
    (rule.check)(tree).iter().map(ToString::to_string).collect()
}

/// Rule, path, a text that breaks it, a text that does not.
fn samples() -> Vec<(&'static str, &'static str, String, String)> {
    let code = "//! Code.\n";
    let long_function = |lines: usize| format!("{code}fn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
    let long_test = |lines: usize| format!("{code}#[test]\nfn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
    let s = |text: &str| text.to_owned();
    vec![
        ("the centre names no platform", "crates/payonce/src/money.rs", s("/// As WeChat does.\n"), s("/// In fen.\n")),
        (
            "the centre names no platform",
            "crates/payonce/src/a/b.rs",
            s("let x = \"ALIPAY\";\n"),
            s("#[cfg(test)]\nmod t { const A: &str = \"ALIPAY\"; }\n"),
        ),
        ("channels are pure", "crates/payonce-channels/src/a.rs", s("async fn a() {}\n"), s("// async\nfn a() {}\n")),
        (
            "channels are pure",
            "crates/payonce-channels/src/a.rs",
            s("let now = Micros::now();\n"),
            s("let now: Micros = x;\n"),
        ),
        (
            "the examiner shares nothing with the examined",
            "crates/payonce-sim/Cargo.toml",
            s("[package]\nname = \"payonce-sim\"\n[dev-dependencies]\npayonce.workspace = true\n"),
            s("[package]\nname = \"payonce-sim\"\n[dependencies]\nserde = \"1\"\n"),
        ),
        (
            "the examiner shares nothing with the examined",
            "crates/payonce-sim/Cargo.toml",
            s("[dependencies.payonce]\npath = \"../payonce\"\n"),
            s("[features]\npayonce = []\n"),
        ),
        (
            "keys are claimed in apply.rs",
            "crates/payonce/src/register.rs",
            s("ledger.book_entries(&keys).await?;\n"),
            s("// book_entries is apply's\n"),
        ),
        (
            "keys are claimed in apply.rs",
            "crates/payonce/src/apply.rs",
            s("a.book_entries(x); a.book_entries(y);\n"),
            s("a.book_entries(x);\n"),
        ),
        (
            "SQL lives in the stores",
            "crates/payonce/src/apply.rs",
            s("let a = \"SELECT a\n  FROM b\";\n"),
            s("let a = \"SELECTED FROM b\"; // SELECT a FROM b\n"),
        ),
        (
            "SQL lives in the stores",
            "crates/payonce-server/src/a.rs",
            s("run(r#\"DELETE FROM payonce_order\"#);\n"),
            s("#[test]\nfn a() { run(\"DELETE FROM x\"); }\n"),
        ),
        (
            "conflict handling stands once per store",
            "crates/payonce/src/store/a.rs",
            s("a(\"ON CONFLICT\"); b(\"x\n ON CONFLICT\");\n"),
            s("a(\"ON CONFLICT\"); // ON CONFLICT\n"),
        ),
        (
            "conflict handling stands once per store",
            "crates/payonce/src/apply.rs",
            s("a(\"INSERT IGNORE\");\n"),
            s("a(\"INSERT\");\n"),
        ),
        (
            "statuses are chosen at the edge",
            "crates/payonce/src/a.rs",
            s("let status = 204;\n"),
            s("(200..300).contains(&status) && amount == 204\n").replace(" && ", "\n&& "),
        ),
        (
            "statuses are chosen at the edge",
            "crates/payonce-server/src/sink.rs",
            s("StatusCode::OK\n"),
            s("response.is_success()\n"),
        ),
        (
            "files say what lives here",
            "crates/payonce/src/a.rs",
            s("// Not it.\nfn a() {}\n"),
            s("//! What lives here.\nfn a() {}\n"),
        ),
        (
            "files say what lives here",
            "crates/payonce/src/a.rs",
            s("//! Something. Here: a.\n") + &"\n".repeat(30),
            s("//! Something.\n//!\n//! Here: a. Not\n//! here: b.\n") + &"\n".repeat(30),
        ),
        ("a function fits a screen", "crates/payonce/src/a.rs", long_function(71), long_function(70)),
        ("a function fits a screen", "crates/payonce/src/a.rs", long_test(121), long_test(120)),
        ("a file fits a mind", "crates/payonce/src/a.rs", "\n".repeat(601), "\n".repeat(600)),
        ("a file fits a mind", "crates/payonce-channels/tests/it/wechat.rs", "\n".repeat(499), "\n".repeat(601)),
        (
            "library code does not unwrap",
            "crates/payonce/src/a.rs",
            s("a.unwrap();\n"),
            s("a.unwrap_or(b);\n#[test]\nfn c() { a.unwrap(); }\n"),
        ),
        ("library code does not unwrap", "crates/payonce-sim/src/a.rs", s("a.expect(\"b\");\n"), s("// a.expect(\n")),
        ("nothing is left to do in the tree", "README.md", s("TO") + "DO: write\n", s("TO") + "DOS\n"),
        ("the tree knows no machine", "docs/en/a.md", s("in /ro") + "ot/a\n", s("/var/lib/payonce\n")),
        (
            "one crypto library",
            "Cargo.lock",
            s("[[package]]\nname = \"chrono\"\nversion = \"0.4\"\n"),
            s("name = \"ring\"\n"),
        ),
        (
            "only crates.io",
            "Cargo.lock",
            s("source = \"git+https://example.com/a\"\n"),
            s("source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"),
        ),
    ]
}

#[test]
fn bad_samples_are_found_and_good_ones_are_not() {
    for (rule, path, bad, good) in samples() {
        assert!(!check(rule, &[(path, &bad)]).is_empty(), "{rule}: not found in {path}:\n{bad}");
        let found = check(rule, &[(path, &good)]);
        assert!(found.is_empty(), "{rule}: {found:?} in {path}:\n{good}");
    }
}

#[test]
fn docs_and_migrations_come_in_full_sets() {
    let docs = "docs come in two languages";
    assert_eq!(check(docs, &[("docs/en/a.md", ""), ("docs/zh/a.md", "")]), [""; 0]);
    assert_eq!(check(docs, &[("docs/en/a.md", ""), ("docs/zh/b.md", "")]).len(), 2);

    let codes = "every code is explained";
    let code = ("crates/payonce/src/outcome.rs", "    Self::Late => \"late\",\n");
    assert_eq!(check(codes, &[code]), [""; 0], "no docs yet");
    assert_eq!(check(codes, &[code, ("docs/en/a.md", "`late`"), ("docs/zh/a.md", "`late`")]), [""; 0]);
    assert_eq!(check(codes, &[code, ("docs/en/a.md", "`late`"), ("docs/zh/a.md", "late")]).len(), 1);

    let migrations = "migrations are equal on every engine";
    let home = "crates/payonce/migrations";
    let (a, b, c) =
        (format!("{home}/sqlite/0001_a.sql"), format!("{home}/mysql/0001_a.sql"), format!("{home}/sqlite/0003_c.sql"));
    assert_eq!(check(migrations, &[(&a, ""), (&b, "")]), [""; 0]);
    let missing = check(migrations, &[(&a, ""), (&b, ""), (&c, "")]);
    assert_eq!(missing.len(), 2, "one engine has it not, and a number is left out: {missing:?}");
    let named = ("crates/payonce/src/store/mysql.rs", "migrate!(\"migrations/mysql\");\n");
    assert_eq!(check(migrations, &[(&a, ""), named]).len(), 1);
    assert_eq!(check(migrations, &[(&a, ""), (&b, ""), named]), [""; 0]);
}

#[test]
fn packages_are_found_where_they_are_built() {
    let tree = Tree { files: Vec::new(), packages: vec!["serde".into(), "ring".into()] };
    assert_eq!(check_tree("one crypto library", &tree), ["cargo tree: ring: see `cargo tree -i ring`"]);
}

#[test]
fn every_rule_has_a_sample() {
    let with_samples: BTreeSet<&str> = samples().iter().map(|sample| sample.0).collect();
    let own_test = [
        "docs come in two languages",
        "every code is explained",
        "migrations are equal on every engine",
        "MySQL 8 would understand it",
    ];
    for rule in &RULES {
        assert!(with_samples.contains(rule.name) || own_test.contains(&rule.name), "{}: no sample", rule.name);
    }
}

#[test]
fn exceptions_have_reasons() {
    assert!(LONG_FILES.iter().all(|(_, why)| why.len() > 20));
}

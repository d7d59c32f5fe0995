//! `cargo xtask gateways`: several gateways behind one address on one database, shown.
//!
//! Here: nginx, the database server, and how much of it. Not here: what is played and counted; it is a test, which is
//! run here with more of everything and with what it tells (`crates/payonce-server/tests/crash/gateways.rs`).

use crate::{
    packages, services,
    shell::{self, Outcome},
    test::closing_line,
};

/// A server's name, and the name of its tests.
const DATABASES: [(&str, &str); 3] =
    [("postgres15", "postgres_15"), ("postgres18", "postgres_18"), ("mariadb", "mariadb")];

/// How much of it.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    count: u32,
    orders: u32,
    database: (&'static str, &'static str),
}

fn options(arguments: &[&str]) -> Outcome<Options> {
    let mut options = Options { count: 3, orders: 50, database: DATABASES[0] };
    for pair in arguments.chunks(2) {
        match *pair {
            ["--count", text] => options.count = between(text, 2, 16)?,
            ["--orders", text] => options.orders = between(text, 2, 1000)?,
            ["--database", text] => {
                let names = DATABASES.map(|(name, _)| name).join(", ");
                let found = DATABASES.into_iter().find(|(name, _)| *name == text);
                options.database = found.ok_or_else(|| format!("no database {text}; there are {names}"))?;
            }
            [word, ..] => return Err(format!("{word}: want --count N, --orders N, --database NAME")),
            [] => {}
        }
    }
    Ok(options)
}

fn between(text: &str, least: u32, most: u32) -> Outcome<u32> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{text} is no number from {least} to {most}"))
}

/// Starts what is needed, and plays it.
pub(crate) fn command(arguments: &[&str]) -> Outcome<()> {
    let options = options(arguments)?;
    let (server, tests) = options.database;
    packages::nginx()?;
    let variables = services::start_these(|name| name == server)?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--locked", "--package", "payonce-server", "--test", "crash", "--", "--nocapture", "--exact"]);
    cargo.arg(format!("gateways::{tests}::behind_one_address")).envs(variables);
    // Half of a round's orders are of each platform.
    cargo.env("PAYONCE_GATEWAYS", options.count.to_string());
    cargo.env("PAYONCE_GATEWAYS_ORDERS", (options.orders / 2).to_string());
    shell::step(&format!("{} gateways on {server}", options.count), || {
        let mut passed = 0;
        let ok = shell::watch(&mut cargo, |line| passed += closing_line(line).unwrap_or_default().passed)?;
        // A name that no test has is a success for cargo.
        if ok && passed == 1 { Ok(()) } else { Err("not everything happened once; see above".to_owned()) }
    })
}

#[test]
fn arguments_are_read() {
    let want = |count, orders, database| Ok(Options { count, orders, database });
    assert_eq!(options(&[]), want(3, 50, DATABASES[0]));
    assert_eq!(options(&["--database", "mariadb", "--count", "5", "--orders", "8"]), want(5, 8, DATABASES[2]));
    for bad in [&["--count", "1"][..], &["--count"], &["--database", "sqlite"], &["--times", "3"]] {
        assert!(options(bad).is_err(), "{bad:?}");
    }
}

//! What MySQL 8 would refuse, or treat otherwise than MariaDB, in the texts that both are given.
//!
//! No MySQL 8 can be had where the tests are written and run, so its manual is asked instead: this list is taken from
//! it (statement syntax, and "Keywords and Reserved Words" of 8.0 and 8.4). It finds words, not mistakes of meaning: what
//! does not fit a column of JSON_TABLE, say, MariaDB cuts, and MySQL 8 by its manual makes NULL (`NULL ON ERROR`); lengths
//! are checked before for both.
//!
//! Here: the words, and the exceptions with their reasons. Not here: the statements (`store/mysql.rs`).

use super::super::{File, Finding, Tree, source::words};

/// Where texts for MySQL are.
const TEXTS: [&str; 5] = [
    "crates/payonce/src/store/mysql.rs",
    "crates/payonce/src/store/mysql/",
    "crates/payonce/src/store/own_table.rs",
    "crates/payonce/src/store/own_table/mysql.rs",
    "crates/payonce/migrations/mysql/",
];

const REFUSED: &str = "MySQL 8 does not know it";
const UNKNOWN_VARIABLE: &str = "MySQL 8 has no such variable";
const LATER: &str = "MySQL knows it from 8.0.31 on only, and 8.0.16 is promised";

/// Words and beginnings of clauses, and what MySQL 8 makes of them.
const OTHERWISE: &[(&str, &str)] = &[
    ("RETURNING", REFUSED),
    ("VALUE(", "MySQL 8 does not know it; name the SELECT's column"),
    ("VALUES(", "deprecated since MySQL 8.0.20; name the SELECT's column, which both understand"),
    ("SET STATEMENT", REFUSED),
    ("CREATE OR REPLACE TABLE", REFUSED),
    ("CREATE OR REPLACE INDEX", REFUSED),
    ("CREATE OR REPLACE TRIGGER", REFUSED),
    ("CREATE OR REPLACE FUNCTION", REFUSED),
    ("CREATE OR REPLACE PROCEDURE", REFUSED),
    ("CREATE INDEX IF", REFUSED),
    ("CREATE UNIQUE INDEX IF", REFUSED),
    ("ADD COLUMN IF", REFUSED),
    ("ADD INDEX IF", REFUSED),
    ("ADD KEY IF", REFUSED),
    ("ADD CONSTRAINT IF", REFUSED),
    ("ADD IF", REFUSED),
    ("DROP COLUMN IF", REFUSED),
    ("DROP INDEX IF", REFUSED),
    ("DROP KEY IF", REFUSED),
    ("DROP CONSTRAINT IF", REFUSED),
    ("DROP FOREIGN KEY IF", REFUSED),
    ("MODIFY COLUMN IF", REFUSED),
    ("CHANGE COLUMN IF", REFUSED),
    ("CREATE SEQUENCE", REFUSED),
    ("NEXT VALUE FOR", REFUSED),
    ("NEXTVAL", REFUSED),
    ("LASTVAL", REFUSED),
    ("WITH SYSTEM VERSIONING", REFUSED),
    ("SYSTEM_TIME", REFUSED),
    ("WITHOUT OVERLAPS", REFUSED),
    ("PERSISTENT", "MySQL 8 says STORED; so does MariaDB"),
    ("WAIT", "MySQL 8 has NOWAIT and SKIP LOCKED alone; set innodb_lock_wait_timeout"),
    ("FETCH FIRST", "MySQL 8 has LIMIT alone"),
    ("FETCH NEXT", "MySQL 8 has LIMIT alone"),
    ("ROWS ONLY", "MySQL 8 has LIMIT alone"),
    ("WITH TIES", REFUSED),
    ("ROWS EXAMINED", REFUSED),
    ("EXCEPT", LATER),
    ("INTERSECT", LATER),
    ("JSON_VALUE", "MySQL knows it from 8.0.21 on only, and 8.0.16 is promised"),
    ("JSON_EXISTS", REFUSED),
    ("JSON_QUERY", REFUSED),
    ("JSON_COMPACT", REFUSED),
    ("JSON_DETAILED", REFUSED),
    ("JSON_LOOSE", REFUSED),
    ("JSON_EQUALS", REFUSED),
    ("JSON_NORMALIZE", REFUSED),
    ("MEDIAN", REFUSED),
    ("NVL", REFUSED),
    ("TO_CHAR", REFUSED),
    ("ADD_MONTHS", REFUSED),
    ("ROWNUM", REFUSED),
    ("SYS_GUID", REFUSED),
    ("INET4", REFUSED),
    ("INET6", REFUSED),
    ("UUID", "a type in MariaDB; MySQL 8 has the function alone"),
    ("JSON", "a LONGTEXT in MariaDB; MySQL 8 keeps a form of its own, with other spaces and another order of keys"),
    ("TEXT DEFAULT", "MySQL 8 wants the default of a text in parentheses"),
    ("LONGTEXT DEFAULT", "MySQL 8 wants the default of a text in parentheses"),
    ("BLOB DEFAULT", "MySQL 8 wants the default of a blob in parentheses"),
    ("LONGBLOB DEFAULT", "MySQL 8 wants the default of a blob in parentheses"),
    ("DEFAULT UTC_TIMESTAMP", "MySQL 8 wants a default that is computed in parentheses"),
    ("DEFAULT UNIX_TIMESTAMP", "MySQL 8 wants a default that is computed in parentheses"),
    ("DEFAULT UUID", "MySQL 8 wants a default that is computed in parentheses"),
    ("ENGINE = ARIA", REFUSED),
    ("PAGE_COMPRESSED", REFUSED),
    ("MAX_STATEMENT_TIME", "MySQL 8 has max_execution_time, in milliseconds, for SELECT alone"),
    ("IDLE_TRANSACTION_TIMEOUT", UNKNOWN_VARIABLE),
    ("IDLE_WRITE_TRANSACTION_TIMEOUT", UNKNOWN_VARIABLE),
    ("IDLE_READONLY_TRANSACTION_TIMEOUT", UNKNOWN_VARIABLE),
    ("INNODB_SNAPSHOT_ISOLATION", UNKNOWN_VARIABLE),
    ("WSREP_ON", UNKNOWN_VARIABLE),
    ("NO_AUTO_CREATE_USER", "MySQL 8 refuses this sql_mode"),
    ("SIMULTANEOUS_ASSIGNMENT", "MySQL 8 refuses this sql_mode"),
    ("EMPTY_STRING_IS_NULL", "MySQL 8 refuses this sql_mode"),
];

/// Parts of names.
const PARTS: &[(&str, &str)] = &[
    ("NOPAD_", "MySQL 8 has no such collation; keys are VARBINARY, and texts utf8mb4_bin"),
    ("_UCA1400_", "MySQL 8 has no such collation; keys are VARBINARY, and texts utf8mb4_bin"),
    ("_0900_", "a collation of MySQL 8 alone; keys are VARBINARY, and texts utf8mb4_bin"),
];

/// Names that MySQL 8.0 or 8.4 reserves and MariaDB 10.11 does not. As a function's name they are none.
const RESERVED: &[&str] = &[
    "CUBE",
    "CUME_DIST",
    "DENSE_RANK",
    "EMPTY",
    "FIRST_VALUE",
    "FUNCTION",
    "GENERATED",
    "GET",
    "GROUPING",
    "GROUPS",
    "IO_AFTER_GTIDS",
    "IO_BEFORE_GTIDS",
    "JSON_TABLE",
    "LAG",
    "LAST_VALUE",
    "LATERAL",
    "LEAD",
    "MANUAL",
    "MASTER_BIND",
    "NTH_VALUE",
    "NTILE",
    "OF",
    "OPTIMIZER_COSTS",
    "PARALLEL",
    "PERCENT_RANK",
    "QUALIFY",
    "RANK",
    "ROW",
    "STORED",
    "SYSTEM",
    "TABLESAMPLE",
    "VIRTUAL",
    "WINDOW",
];

/// What stays although it is on the list: file, word, reason. An entry that is no longer needed is a finding.
const KEPT: &[(&str, &str, &str)] = &[
    (SESSION, "MAX_STATEMENT_TIME", "set on MariaDB alone, which says in its version that it is one"),
    (SESSION, "IDLE_WRITE_TRANSACTION_TIMEOUT", "set on MariaDB alone, which says in its version that it is one"),
    (SESSION, "WSREP_ON", "looked for among all variables: one that a server does not have is a row less, no error"),
    (OWN_TABLE, "OF", "in the arm of PostgreSQL; MySQL and MariaDB get FOR UPDATE without it"),
    (OWN_SCHEMA, "NOPAD_", "compared with the names of the user's collations; on MySQL 8 none is like that"),
    (OWN_SCHEMA, "_0900_", "likewise; on MariaDB none is like that"),
];
const SESSION: &str = "crates/payonce/src/store/mysql/session.rs";
const OWN_TABLE: &str = "crates/payonce/src/store/own_table.rs";
const OWN_SCHEMA: &str = "crates/payonce/src/store/own_table/mysql.rs";

/// Everything on the list that is not kept, and everything kept that is not there.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| TEXTS.iter().any(|text| file.path.starts_with(text))) {
        let met: Vec<(&str, Finding)> =
            texts(file).iter().flat_map(|(line, text)| in_text(file, *line, text)).collect();
        let is_kept = |word: &str| KEPT.iter().any(|(path, kept, _)| *path == file.path && *kept == word);
        let stale =
            KEPT.iter().filter(|(path, kept, _)| *path == file.path && met.iter().all(|(word, _)| word != kept));
        found
            .extend(stale.map(|(_, word, _)| file.whole(format!("{word} is not there any more: take it out of KEPT"))));
        found.extend(met.into_iter().filter(|(word, _)| !is_kept(word)).map(|(_, finding)| finding));
    }
    found
}

/// What the server may be given: strings of code outside tests, or a migration without its comments. With the line
/// (from 0) where each begins, and single blanks.
fn texts(file: &File) -> Vec<(usize, String)> {
    let bare = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if file.is_rust() {
        let source = file.source();
        let strings = source.strings.iter().filter(|(line, _)| !source.is_test(*line));
        return strings.map(|(line, text)| (*line, bare(text))).collect();
    }
    let code = |line: &str| bare(line.split("--").next().unwrap_or_default());
    file.text.lines().map(code).enumerate().collect()
}

/// Whether it is a statement, or a part of one, and no message for people: these have no keywords in capitals.
fn is_statement(text: &str) -> bool {
    let keywords = [
        "SELECT", "FROM", "JOIN", "WHERE", "ORDER", "GROUP", "INSERT", "UPDATE", "DELETE", "SET", "CREATE", "TABLE",
        "KEY", "NULL", "AND",
    ];
    keywords.iter().any(|keyword| words(text, keyword).next().is_some())
}

fn in_text(file: &File, line: usize, text: &str) -> Vec<(&'static str, Finding)> {
    let reserved = if is_statement(text) || !file.is_rust() { RESERVED } else { &[] };
    let text = &text.to_ascii_uppercase();
    let is_called = |at: usize, word: &str| text[at + word.len()..].starts_with('(');
    // Behind a dot stands a name, whatever it is.
    let is_quoted = |at: usize| text[..at].ends_with(['`', '.']);
    let names = reserved.iter().map(|word| (*word, "MySQL 8 reserves it: take another name"));
    let whole = OTHERWISE.iter().copied().chain(names);
    let met = whole.filter(|(word, _)| words(text, word).any(|at| !is_called(at, word) && !is_quoted(at)));
    let parts = PARTS.iter().copied().filter(|(part, _)| text.contains(part));
    met.chain(parts)
        .map(|(word, what)| {
            (word, Finding { path: file.path.clone(), line: line + 1, what: format!("{word}: {what}") })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<String> {
        let tree = Tree { files: vec![File::new(path, text)], packages: Vec::new() };
        check(&tree).iter().map(ToString::to_string).collect()
    }

    /// Each entry is met in a statement, in small letters and over a line's end, and not in a longer word.
    #[test]
    fn each_word_is_found() {
        let path = "crates/payonce/src/store/mysql/new.rs";
        let whole = OTHERWISE.iter().map(|(word, _)| *word).chain(RESERVED.iter().copied());
        for word in whole.clone() {
            let broken = word.to_lowercase().replace(' ', "\n   ");
            let found = check_text(path, &format!("const SQL: &str = \"SELECT a {broken} b\";\n"));
            assert!(found.iter().any(|line| line.contains(&format!(":1: {word}: "))), "{word}: {found:?}");
            let longer = format!("const SQL: &str = \"SELECT x{}\";\n", word.replace(' ', "x"));
            assert!(check_text(path, &longer).is_empty(), "{longer}");
        }
        for word in whole.filter(|word| !word.contains([' ', '('])) {
            let fine = format!("const SQL: &str = \"SELECT {word}(a), `{word}` FROM b\"; // {word}\n");
            assert!(check_text(path, &fine).is_empty(), "{fine}");
        }
        for (part, _) in PARTS {
            let found =
                check_text(path, &format!("const SQL: &str = \"a COLLATE utf8mb4{}bin\";\n", part.to_lowercase()));
            assert_eq!(found.len(), 1, "{part}: {found:?}");
        }
    }

    #[test]
    fn only_what_mysql_is_given_counts() {
        let bad = "SELECT 1; -- RETURNING\nDELETE FROM a RETURNING b;\n";
        assert_eq!(check_text("crates/payonce/migrations/mysql/0002_a.sql", bad).len(), 1);
        assert_eq!(check_text("crates/payonce/migrations/postgres/0002_a.sql", bad), [""; 0]);
        let test = "#[test]\nfn a() { run(\"DELETE FROM a RETURNING b\"); }\n";
        assert_eq!(
            check_text("crates/payonce/src/store/mysql.rs", test).iter().filter(|f| f.contains(":2:")).count(),
            0
        );
    }

    #[test]
    fn what_is_kept_has_a_reason_and_is_there() {
        assert!(KEPT.iter().all(|(path, word, why)| why.len() > 20 && !path.is_empty() && !word.is_empty()));
        for (path, word, _) in KEPT {
            let found = check_text(path, "const SQL: &str = \"SELECT 1\";\n");
            assert!(found.iter().any(|line| line.contains(word) && line.contains("KEPT")), "{word}: {found:?}");
        }
    }
}

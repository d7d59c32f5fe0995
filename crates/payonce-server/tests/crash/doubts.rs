//! Servers with settings that make an acknowledgement untrue: refused, unless somebody wrote that it is accepted.

use std::process::Stdio;

use crate::{
    databases::{Kind, own::OwnServer},
    support::Site,
};

#[tokio::test(flavor = "multi_thread")]
async fn postgres_without_fsync_is_refused_unless_accepted() {
    refused_unless_accepted(Kind::Postgres15, "--fsync=off", "fsync = off").await;
    refused_unless_accepted(Kind::Postgres18, "--full-page-writes=off", "full_page_writes = off").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_that_flushes_late_is_refused_unless_accepted() {
    let doubt = "innodb_flush_log_at_trx_commit = 2";
    refused_unless_accepted(Kind::Mariadb, "--innodb-flush-log-at-trx-commit=2", doubt).await;
}

async fn refused_unless_accepted(kind: Kind, setting: &str, doubt: &str) {
    const ACCEPT: &str = "PAYONCE__DATABASE__ACCEPT_UNSAFE_SETTINGS";
    let server = OwnServer::start_new(kind, &[setting]).await;
    let mut site = Site::on(server.database(), "").await;
    let said = |word: &str, accepted: &str| {
        let mut command = site.command(word);
        let done = command.env(ACCEPT, accepted).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        (done.status.code(), [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat())
    };
    let (code, text) = said("serve", "false");
    assert_eq!(code, Some(1), "{text}");
    for part in [doubt, "the database is not safe enough", "accept_unsafe_settings = true in [database]"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The table is as wide as the terminal; JSON is not broken into lines.
    site.variables = vec![("COLUMNS", "2000")];
    let said = |accepted: &str| {
        let done = site.command("doctor").env(ACCEPT, accepted).stdout(Stdio::piped()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, text) = said("false");
    assert!(code == Some(1) && text.contains(doubt) && text.contains("FAULT"), "{text}");
    let (code, text) = said("true");
    assert!(code == Some(0) && text.contains(doubt) && text.contains("accepted by"), "{text}");
    assert!(!text.contains("commits are durable"), "{text}");
    site.variables = vec![(ACCEPT, "true")];
    site.start().await;
    let (code, log) = site.stop().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains(doubt) && log.contains("what is acknowledged can be lost"), "{log}");
}

/// What a session can set for itself is set, whatever the server, the database or the role says.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_asynchronous_commits_is_overruled() {
    let server = OwnServer::start_new(Kind::Postgres18, &["--synchronous-commit=off"]).await;
    let mut site = Site::on(server.database(), "").await;
    let mut admin = server.database().connect().await;
    admin
        .run("ALTER DATABASE books SET synchronous_commit = off; ALTER ROLE postgres SET synchronous_commit = off")
        .await;
    let theirs = "SELECT current_setting('synchronous_commit')";
    assert_eq!(server.database().connect().await.text(theirs).await.as_deref(), Some("off"));
    site.start().await;
    assert_eq!(site.try_register("DURABLE").await, 201, "{}", site.log());
    let doctor = site.command("doctor").arg("--json").stdout(Stdio::piped()).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.status.success() && text.contains("commits are durable"), "{text}");
    let (code, log) = site.stop().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("WARN"), "{log}");
}

//! What the binary says about itself.

use crate::support::Folder;

#[test]
fn help_says_what_each_command_is_for_and_gives_examples() {
    let folder = Folder::empty();
    for (arguments, expected) in [
        (
            vec!["--help"],
            vec![
                "Payment callbacks always repeat",
                "serve",
                "init",
                "doctor",
                "migrate",
                "--config",
                "PAYONCE_CONFIG",
                "Examples:",
                "PAYONCE__SECTION__KEY",
            ],
        ),
        (vec!["serve", "--help"], vec!["Receive callbacks", "notify URL", "SIGTERM", "Examples:"]),
        (vec!["init", "--help"], vec!["--force", "--dir", "--manual", "never replaced", "Examples:"]),
        (vec!["doctor", "--help"], vec!["--json", "--online", "Exit code 0", "Examples:"]),
        (vec!["migrate", "--help"], vec!["payonce_", "Examples:"]),
    ] {
        let done = folder.run(&arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}");
        for text in expected {
            assert!(done.out.contains(text), "{arguments:?} does not say {text:?}:\n{}", done.out);
        }
    }
}

#[test]
fn the_version_is_told_and_nonsense_is_refused() {
    let folder = Folder::empty();
    let done = folder.run(&["--version"]);
    assert_eq!(done.out.trim(), format!("payonce {}", env!("CARGO_PKG_VERSION")));
    let done = folder.run(&["serv"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("serve"), "{}", done.err);
    assert_eq!(folder.run(&[]).code, Some(2));
}

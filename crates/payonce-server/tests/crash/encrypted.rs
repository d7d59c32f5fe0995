//! Servers that are spoken to in TLS: the certificate is checked against the CA and the host of the URL.

use std::{fs, path::Path, process::Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::{
    databases::{Database, Kind, own::OwnServer},
    support::Site,
};

#[tokio::test(flavor = "multi_thread")]
async fn postgres_by_its_certificate() {
    let certificates = Certificates::new();
    let at = |name: &str| certificates.path(name);
    let settings = [
        "--ssl=on".to_owned(),
        format!("--ssl-cert-file={}", at("server.pem")),
        format!("--ssl-key-file={}", at("server.key")),
    ];
    // The wheel that PostgreSQL 18 comes in was built without TLS.
    let kind = Kind::Postgres15;
    let server = OwnServer::start_new(kind, &settings.each_ref().map(String::as_str)).await;
    let url = server.database().url;
    let of_ca = |ca: &str, host: &str| {
        let url = url.replace("127.0.0.1", host);
        Database { kind, url: format!("{url}?sslmode=verify-full&sslrootcert={}", at(ca)) }
    };
    let is_encrypted = "SELECT bool_and(ssl)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                        WHERE application_name = 'payonce'";
    let mut site = Site::on(of_ca("ca.pem", "127.0.0.1"), "").await;
    site.start().await;
    assert_eq!(server.database().connect().await.text(is_encrypted).await.as_deref(), Some("true"));
    site.stop().await;
    refused(of_ca("other-ca.pem", "127.0.0.1")).await;
    refused(of_ca("ca.pem", "localhost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_by_its_certificate() {
    let certificates = Certificates::new();
    let at = |name: &str| certificates.path(name);
    let settings = [format!("--ssl-cert={}", at("server.pem")), format!("--ssl-key={}", at("server.key"))];
    let server = OwnServer::start_new(Kind::Mariadb, &settings.each_ref().map(String::as_str)).await;
    let mut admin = server.database().connect().await;
    admin.run("CREATE USER encrypted@'%' IDENTIFIED BY 'p' REQUIRE SSL").await;
    admin.run("GRANT ALL ON books.* TO encrypted@'%'").await;
    let url = server.database().url.replace("root@", "encrypted:p@");
    let of_ca = |ca: &str, host: &str| {
        let url = url.replace("127.0.0.1", host);
        Database { kind: Kind::Mariadb, url: format!("{url}?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", at(ca)) }
    };
    // The server lets this user in with TLS only.
    let mut site = Site::on(of_ca("ca.pem", "127.0.0.1"), "").await;
    site.start().await;
    site.stop().await;
    refused(of_ca("other-ca.pem", "127.0.0.1")).await;
    refused(of_ca("ca.pem", "localhost")).await;
}

/// The gateway does not start, and says what to compare.
async fn refused(database: Database) {
    let site = Site::on(database, "").await;
    let done = site.command("migrate").stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
    assert!(!done.status.success(), "{text}");
    for part in ["invalid peer certificate", "the host in `url`", "sslrootcert"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A CA, a certificate for 127.0.0.1 that it signed, and a CA that did not.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = authority("the CA");
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        for (name, text) in [
            ("ca.pem", ca.pem()),
            ("other-ca.pem", authority("another CA").pem()),
            ("server.pem", server.pem()),
            ("server.key", key.serialize_pem()),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        OwnServer::give(dir.path());
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        Path::new(self.0.path()).join(name).display().to_string()
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

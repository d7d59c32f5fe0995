//! Which database the books are in, and how it is opened: the one place that names the engines.
//!
//! Here: the table of engines, and what every command asks of whichever it is. Not here: SQL (`payonce::store`),
//! reading the URL's setting (`config/database_url`), or what is told about it (`cli`).

#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::marker::PhantomData;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use payonce::{
    Error,
    own_table::OwnTable,
    rules::Rules,
    store::{
        self, About, Database, OwnSchema, Store,
        sqlite::{Sqlite, SqliteOptions},
    },
};

use crate::config::Secret;

/// One engine.
pub struct Engine {
    /// As a person would say it.
    pub name: &'static str,
    /// What its URLs begin with.
    pub schemes: &'static [&'static str],
    /// What may follow `?` in them: how the connection is made, never what a commit is worth.
    pub parameters: &'static [&'static str],
    /// Whether it is a file beside the configuration, not a server.
    pub is_file: bool,
    /// What runs there, since which version, and what of it the tests run on.
    pub products: &'static [Product],
    door: fn(&Place) -> Box<dyn Door>,
}

/// A server of an engine's dialect.
#[derive(Debug)]
pub struct Product {
    /// Its name.
    pub name: &'static str,
    /// The first version that knows all of our SQL.
    pub since: (u32, u32),
    /// The series that the tests were run on, and which version of it.
    pub tested: &'static [(&'static str, &'static str)],
}

/// The engines of this build.
pub static ENGINES: &[Engine] = &[
    Engine { name: "SQLite", schemes: &["sqlite"], parameters: &[], is_file: true, products: &[], door: FileDoor::of },
    #[cfg(feature = "postgres")]
    Engine {
        name: "PostgreSQL",
        schemes: &["postgres", "postgresql"],
        parameters: &["sslmode", "sslrootcert", "sslcert", "sslkey", "host"],
        is_file: false,
        products: &[Product { name: "PostgreSQL", since: (12, 0), tested: &[("15", "15.18"), ("18", "18.6")] }],
        door: ServerDoor::<sqlx::PgConnection>::of,
    },
    #[cfg(feature = "mysql")]
    Engine {
        name: "MySQL",
        schemes: &["mysql", "mariadb"],
        parameters: &["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"],
        is_file: false,
        products: &[
            Product { name: "MariaDB", since: (10, 6), tested: &[("10.11", "10.11.19")] },
            Product { name: "MySQL", since: (8, 0), tested: &[] },
            Product { name: "OceanBase", since: (0, 0), tested: &[("seekdb-v1.4", "seekdb 1.4.0")] },
        ],
        door: ServerDoor::<sqlx::MySqlConnection>::of,
    },
];

/// The engine that a URL begins with.
pub fn engine_of(scheme: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.schemes.contains(&scheme))
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Where the books are.
#[derive(Clone, Debug)]
pub struct Place {
    engine: &'static Engine,
    at: At,
}

#[derive(Clone, Debug)]
enum At {
    File(PathBuf),
    /// The URL, and the same without user, password and parameters.
    Server(Secret, String),
}

impl Place {
    /// A file of SQLite.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self { engine: &ENGINES[0], at: At::File(path.into()) }
    }

    /// A database on a server. `shown`: the URL as it may be seen.
    pub fn server(engine: &'static Engine, url: Secret, shown: impl Into<String>) -> Self {
        Self { engine, at: At::Server(url, shown.into()) }
    }

    /// The engine.
    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// The file, if it is one.
    pub fn as_file(&self) -> Option<&Path> {
        match &self.at {
            At::File(path) => Some(path),
            At::Server(..) => None,
        }
    }

    /// The URL, if it is a server's.
    pub fn url(&self) -> Option<&Secret> {
        match &self.at {
            At::File(_) => None,
            At::Server(url, _) => Some(url),
        }
    }

    /// The way in.
    pub fn door(&self) -> Box<dyn Door> {
        (self.engine.door)(self)
    }
}

/// Without a password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::File(path) => write!(f, "sqlite:{}", path.display()),
            At::Server(_, shown) => f.write_str(shown),
        }
    }
}

/// What the commands ask of a database, whichever engine it is.
pub trait Door: Send + Sync {
    /// Brings the tables up to date; the numbers of the migrations applied now.
    fn migrate(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>>;
    /// Opens it.
    fn open(&self, rules: Arc<Rules>) -> BoxFuture<'_, Result<Arc<dyn Books>, Error>>;
    /// What a server says of itself; nothing of a file.
    fn about(&self) -> BoxFuture<'_, Result<Option<About>, Error>> {
        Box::pin(async { Ok(None) })
    }
}

/// A database that is open: what the gateway needs, and what `payonce doctor` looks at.
pub trait Books: Store {
    /// Settings that would make an acknowledgement untrue, each as a sentence.
    fn doubts(&self) -> BoxFuture<'_, Result<Vec<String>, Error>>;
    /// What a shop's own table is like.
    fn own_schema<'a>(&'a self, table: &'a OwnTable) -> BoxFuture<'a, Result<OwnSchema, Error>>;
}

impl<E: store::Engine> Books for Database<E> {
    fn doubts(&self) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        Box::pin(self.doubts())
    }

    fn own_schema<'a>(&'a self, table: &'a OwnTable) -> BoxFuture<'a, Result<OwnSchema, Error>> {
        Box::pin(self.own_schema(table))
    }
}

async fn enter<E: store::Engine>(options: &E::Options, rules: Arc<Rules>) -> Result<Arc<dyn Books>, Error> {
    Ok(Arc::new(Database::<E>::open(options.clone(), rules).await?))
}

/// A file.
struct FileDoor(SqliteOptions);

impl FileDoor {
    fn of(place: &Place) -> Box<dyn Door> {
        Box::new(Self(SqliteOptions { path: place.as_file().unwrap_or(Path::new("")).to_owned() }))
    }
}

impl Door for FileDoor {
    fn migrate(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>> {
        Box::pin(Database::<Sqlite>::migrate(&self.0))
    }

    fn open(&self, rules: Arc<Rules>) -> BoxFuture<'_, Result<Arc<dyn Books>, Error>> {
        Box::pin(enter::<Sqlite>(&self.0, rules))
    }
}

/// A server.
#[cfg(any(feature = "postgres", feature = "mysql"))]
struct ServerDoor<E>(store::server::ServerOptions, PhantomData<fn() -> E>);

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl<E: store::server::Server> ServerDoor<E> {
    fn of(place: &Place) -> Box<dyn Door> {
        let url = place.url().map(Secret::expose).unwrap_or_default();
        Box::new(Self(store::server::ServerOptions::new(url), PhantomData))
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl<E: store::server::Server> Door for ServerDoor<E> {
    /// What is up to date is left alone, so that a role without the right to make tables can start a gateway.
    fn migrate(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>> {
        Box::pin(async {
            let about = E::connect_reader(&self.0).await?.about().await?;
            if about.applied == about.known { Ok(Vec::new()) } else { Database::<E>::migrate(&self.0).await }
        })
    }

    fn open(&self, rules: Arc<Rules>) -> BoxFuture<'_, Result<Arc<dyn Books>, Error>> {
        Box::pin(enter::<E>(&self.0, rules))
    }

    fn about(&self) -> BoxFuture<'_, Result<Option<About>, Error>> {
        Box::pin(async { E::connect_reader(&self.0).await?.about().await.map(Some) })
    }
}

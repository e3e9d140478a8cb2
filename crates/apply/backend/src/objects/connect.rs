//! Clients of object stores, with their settings in the environment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use super::target::{ObjectTarget, Provider};

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(5);

/// Variables with the paths of files that the client of a provider reads.
fn variables(provider: Provider) -> &'static [&'static str] {
    match provider {
        Provider::S3 => &["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"],
        Provider::Google => &[
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "SERVICE_ACCOUNT",
        ],
        Provider::Azure => &["AZURE_FEDERATED_TOKEN_FILE", "AZURE_STORAGE_FEDERATED_TOKEN_FILE"],
    }
}

/// Without one of these, clients ask the machine that they run on for credentials.
const S3_CREDENTIALS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// Files with credentials, and files or folders with certificates, that the client of a provider reads.
pub(super) fn files(provider: Provider) -> Vec<PathBuf> {
    let of_provider = variables(provider).iter().filter_map(std::env::var_os).map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|_| provider == Provider::Google);
    let known = home.map(|home| home.join(".config/gcloud/application_default_credentials.json"));
    let certificates = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(std::env::var_os);
    let certificates = certificates.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    of_provider.chain(known).chain(certificates).filter(|path| path.exists()).collect()
}

/// A hint for users without access.
pub(super) fn hint(provider: Provider) -> &'static str {
    match provider {
        Provider::S3 if !S3_CREDENTIALS.iter().any(|name| std::env::var_os(name).is_some()) => {
            ": the environment has no credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        }
        _ => "",
    }
}

/// A client. It makes no request yet.
pub(super) fn connect(target: &ObjectTarget) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    // Another part of the program may have chosen it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // `Store` limits the time of requests, and tries them again.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let options = ClientOptions::new().with_timeout(target.timeout).with_connect_timeout(CONNECTING);
    let is_plain = |names: &[&str]| {
        let endpoint = names.iter().find_map(|name| std::env::var(name).ok());
        endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
    };
    let bucket = &target.bucket;
    Ok(match target.provider {
        Provider::S3 => {
            let plain = is_plain(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
            // Its client for deleting several objects at once panics if the store answers with another name.
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
            let builder = builder.with_disable_bulk_delete(true);
            Arc::new(builder.with_client_options(options.with_allow_http(plain)).build()?)
        }
        Provider::Google => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
            // An address of its own, such as that of an emulator, is in the file of the service account.
            Arc::new(builder.with_client_options(options.with_allow_http(true)).build()?)
        }
        Provider::Azure => {
            let plain = is_plain(&["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]);
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
            Arc::new(builder.with_client_options(options.with_allow_http(plain)).build()?)
        }
    })
}

"""A program that commits to one branch as fast as it can: `… ENDPOINT BUCKET PREFIX BRANCH COUNT PAUSE`.

It prints the id of each commit when the commit has succeeded. It imports little, so that it starts fast.
"""

import sys
import time

import icechunk as ic
import zarr


def commit_to(repository: ic.Repository, branch: str = "main", number: int = 11) -> str:
    """Commit as a user does, and return the new snapshot's id."""
    session = repository.writable_session(branch)
    zarr.open_array(session.store, path="a", mode="r+")[number] = number
    return session.commit(f"number {number}")


def storage_of(endpoint: str, bucket: str, prefix: str) -> ic.Storage:
    """Return icechunk's storage of a repository in a bucket whose server accepts any credentials."""
    return ic.s3_storage(
        bucket=bucket,
        prefix=prefix,
        endpoint_url=endpoint,
        allow_http=True,
        force_path_style=True,
        region="us-east-1",
        access_key_id="any-access-key",
        secret_access_key="any-secret-key",
    )


def main(endpoint: str, bucket: str, prefix: str, branch: str, count: str, pause: str) -> None:
    repository = ic.Repository.open(storage_of(endpoint, bucket, prefix))
    for number in range(int(count)):
        sys.stdout.write(f"{commit_to(repository, branch, number % 12)}\n")
        sys.stdout.flush()
        time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])

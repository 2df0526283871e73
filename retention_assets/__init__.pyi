from retention_assets.library import Lake as Lake
from retention_assets.library import LakeRepository as LakeRepository
from retention_assets.library import load as load
